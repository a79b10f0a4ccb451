"""The words of a command line that name a model and ask it something: [MODEL] PROMPT…"""

import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile
    from imp_service.generation import ModelRuntime

STDIN = "-"
# As llama3.2, phi-4, OWNER/NAME or NAME:TYPE: a question is no such word.
_NAME = re.compile(
    r"[a-z][a-z._-]*\d[\w.-]*|[\w.-]*[a-z][\w.-]*/[\w./-]+|[\w./-]*[a-z][\w./-]*:[\w./-]+", re.IGNORECASE | re.ASCII
)


def add_words(parser: ArgumentParser, prompt: str, text: str) -> None:
    """The words as positional arguments. Help calls the prompt `prompt`."""
    parser.add_argument(
        "words",
        metavar=f"MODEL {prompt}",
        nargs="*",
        help=f"the model, in place of -m, and {text}; - reads it from stdin",
    )


def split_words(arguments: Namespace, *, is_model: bool) -> list[str]:
    """Takes the model out of the words, unless -m names it, and returns the words of the prompt.

    The first of several words is the model. So is a word alone that can only be a model, or with `is_model` every word
    alone that has no spaces.
    """
    words: list[str] = arguments.words
    if not words or arguments.model is not None:
        return words
    first = words[0]
    is_named = is_model and not any(letter.isspace() for letter in first)
    if len(words) == 1 and not is_named and not _names_model(first, arguments):
        return words
    arguments.model = first
    return words[1:]


def _names_model(word: str, arguments: Namespace) -> bool:
    if word.endswith(".gguf") or _NAME.fullmatch(word) is not None or os.path.lexists(f"{word}/config.json"):
        return True
    from imp_service.config import read_settings
    from imp_service.config.select import names_entry

    return names_entry(read_settings(arguments.config, arguments.assignments), word)


def read_words(words: Sequence[str], config: "Config", arguments: Namespace) -> str:
    """The prompt. Without words it comes through a pipe."""
    from imp_service.cli.terminal import read_prompt

    if words or not sys.stdin.isatty():
        prompt = read_prompt(" ".join(words) or STDIN)
        if prompt or words:
            return prompt
    from imp_service.core.checkpoint import open_checkpoint

    open_checkpoint(config)  # that the model is missing is to be said first
    named = f"; imp chat {arguments.words[0]} begins a conversation" if arguments.words else ""
    raise CommandError("USAGE", f"PROMPT: expected a question{named}")


def add_stray_words(arguments: Namespace, unknown: Sequence[str]) -> list[str]:
    """Adds the words after an option to those before it; returns the unknown options, with their values.

    argparse takes the words up to the first option only.
    """
    if not hasattr(arguments, "words") or any(word.startswith("-") and word != STDIN for word in unknown):
        return list(unknown)
    arguments.words = [*arguments.words, *unknown]
    return []


def load_named_model(config: "Config", arguments: Namespace, words: Sequence[str]) -> "tuple[ModelRuntime, ModelFile]":
    """Loads the model. If the first word is none, the error says what it may have been instead."""
    from imp_service.api.errors import Error
    from imp_service.cli.progress import load_model

    try:
        runtime, file = load_model(config)
        runtime.embedder.require_generation()
        return runtime, file
    except Error as error:
        is_first = len(arguments.words) > len(words)
        if error.reason == "MODEL_MISSING" and is_first and not arguments.model.endswith(".gguf"):
            first = arguments.words[0]
            asked = f'"{" ".join(arguments.words)}"' if words else f"echo {first} | imp {arguments.command}"
            how = "quote all of it" if words else "write"
            error.message = f"{error.message}; if {first} is part of a question, {how}: {asked}"
        raise
