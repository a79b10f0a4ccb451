"""The options and inputs of commands that make vectors or rank documents."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, positive_integer
from imp_service.cli.failure import CommandError
from imp_service.cli.options.words import STDIN

if TYPE_CHECKING:
    from imp_service.api.vectors import EmbedOptions, RerankOptions
    from imp_service.config import Config
# Texts of one call: those before them are printed meanwhile.
BATCH = 1024


def add_embed_options(parser: ArgumentParser) -> None:
    """How texts become vectors."""
    parser.add_argument(
        "--dimensions", metavar="N", type=positive_integer, action=Once, help="only the first N numbers of each vector"
    )
    parser.add_argument(
        "--no-normalize", action="store_true", help="leave vectors as long as they are (default: length 1)"
    )
    parser.add_argument(
        "--no-special", action="store_true", help="leave out the tokens that the model has around a text"
    )
    parser.add_argument("--prompt-name", metavar="NAME", action=Once, help="put this prompt of the model before a text")
    _add_common_options(parser, "what the vectors are for, where the model's prompt has a place for it")


def add_rerank_options(parser: ArgumentParser) -> None:
    """How documents are ranked."""
    parser.add_argument(
        "--max-document-tokens", metavar="N", type=positive_integer, action=Once, help="cut documents after N tokens"
    )
    parser.add_argument("--top-n", metavar="N", type=positive_integer, action=Once, help="only the best N documents")
    parser.add_argument("--raw-scores", action="store_true", help="the model's own numbers (default: probabilities)")
    _add_common_options(parser, "what makes a document fit, where the model's prompt has a place for it")


def _add_common_options(parser: ArgumentParser, instruction: str) -> None:
    from imp_service.api.vectors import TRUNCATIONS

    parser.add_argument("--instruction", metavar="TEXT", action=Once, help=instruction)
    parser.add_argument("--max-tokens", metavar="N", type=positive_integer, action=Once, help="most tokens of an input")
    parser.add_argument(
        "--truncate",
        metavar="WHERE",
        choices=TRUNCATIONS,
        action=Once,
        help=f"cut what is too long: {', '.join(TRUNCATIONS)} (default: limits.truncate)",
    )


def embed_options(arguments: Namespace) -> "EmbedOptions":
    """The options of add_embed_options()."""
    from imp_service.api.vectors import EmbedOptions

    return EmbedOptions(
        dimensions=arguments.dimensions,
        normalize=not arguments.no_normalize,
        truncate=arguments.truncate or "",
        max_tokens=arguments.max_tokens,
        add_special_tokens=not arguments.no_special,
        prompt_name=arguments.prompt_name or "",
        instruction=arguments.instruction or "",
    )


def rerank_options(arguments: Namespace) -> "RerankOptions":
    """The options of add_rerank_options()."""
    from imp_service.api.vectors import RerankOptions

    return RerankOptions(
        top_n=arguments.top_n,
        truncate=arguments.truncate or "",
        max_tokens=arguments.max_tokens,
        max_document_tokens=arguments.max_document_tokens,
        instruction=arguments.instruction or "",
        raw_scores=arguments.raw_scores,
    )


def require_model(config: "Config", first: str, example: str) -> None:
    """Raises CommandError if no model is named. `first`: the first word, where other commands take the model."""
    from imp_service.cli.banner import is_built_in

    if is_built_in(config) and config.settings.model.overrides.pooling is None:
        named = first if os.path.lexists(first) else example
        raise CommandError(
            "USAGE", f"no model, expected -m MODEL, such as -m {named}; the built-in demo only generates"
        )


def texts_of(words: Sequence[str]) -> list[str]:
    """The texts of a command line, or each line of stdin."""
    from imp_service.cli.terminal import read_prompt

    if words:
        return [read_prompt(word) for word in words]
    if sys.stdin.isatty():
        raise CommandError("USAGE", "TEXT: expected a text, or a line for each text through a pipe")
    return lines_of([STDIN])


def lines_of(names: Sequence[str]) -> list[str]:
    """The lines of files, each a text; lines of nothing but spaces are left out."""
    return [line for name in names or [STDIN] for line in _read(name).splitlines() if line.strip()]


def _read(name: str) -> str:
    from imp_service.cli.terminal import decode

    if name == STDIN:
        return decode(sys.stdin.buffer.read(), "stdin")
    return decode(Path(name).read_bytes(), name)


def batches(texts: Sequence[str], n: int) -> Iterator[Sequence[str]]:
    """The texts, at most `n` at a time."""
    for first in range(0, len(texts), n):
        yield texts[first : first + n]
