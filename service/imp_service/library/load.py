"""Loads a model for a program: by path, by the name of a downloaded model, or from a hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

from imp_service.api.errors import ModelError, error_of, invalid
from imp_service.cli.failure import CommandError, describe
from imp_service.cli.hub.reference import PREFIX
from imp_service.cli.options.settings import downloaded_model
from imp_service.cli.progress import LoadingLine
from imp_service.config import Config, read_settings
from imp_service.config.select import select_model
from imp_service.generation.errors import translating_text_errors
from imp_service.generation.loading import load_model

if TYPE_CHECKING:
    from imp_service.generation import LanguageModel


def load_named(
    model: str | PathLike[str] | None, settings: tuple[str, ...], config: str | None, progress: bool | None
) -> LanguageModel:
    """As `imp_service.load`."""
    is_shown = _has_viewer() if progress is None else progress
    chosen = read_settings(config, settings)
    if model is not None:
        chosen = select_model(chosen, _path_of(fspath(model), chosen, is_shown=is_shown))
    line = LoadingLine(is_shown=is_shown)
    with translating_text_errors():
        try:
            runtime = load_model(chosen, progress=line)
        finally:
            line.clear()
        from imp_service.generation.language_model import LanguageModel  # needed only now: weights are read meanwhile

        return LanguageModel(runtime)


def _path_of(word: str, config: Config, *, is_shown: bool) -> str:
    """The path of the model, which is downloaded if the word is a reference to a hub."""
    with _hub_errors():
        if not word.startswith(PREFIX):
            found = downloaded_model(word, config)
            return word if found is None else str(found.path)
        from imp_service.cli.hub.get import get_model  # imported here: it takes long
        from imp_service.cli.hub.hub import Verbosity

        return str(get_model(word, verbosity=Verbosity.BARS if is_shown else Verbosity.NOTHING))


@contextmanager
def _hub_errors() -> Iterator[None]:
    """Errors of commands as those of the library."""
    try:
        yield
    except CommandError as error:
        if error.reason == "USAGE":
            raise invalid("path", error.message) from None
        raise error_of(ModelError, error.reason, error.message) from None
    except OSError as error:  # of the disk
        raise error_of(ModelError, *describe(error)) from None


def _has_viewer() -> bool:
    """Whether somebody watches stderr: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
