"""Progress lines on a terminal: of a measurement, and of a model that is loaded."""

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile
    from imp_service.generation import ModelRuntime


class Progress:
    """One line on stderr that is overwritten; only if stderr is a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def show(self, line: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{line} …")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


QUIET_SECONDS = 0.5


class LoadingLine:
    """Shows the progress of a slow load, by default if stderr is a terminal.

    Called between reads, so Ctrl-C can end a load.
    """

    def __init__(self, *, is_shown: bool | None = None) -> None:
        self._begin = time.monotonic()
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // max(1, total)
        if self._is_shown and percent != self._shown and time.monotonic() - self._begin > QUIET_SECONDS:
            self._shown = percent
            sys.stderr.write(f"\rloading {percent:3} %")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def load_model(config: "Config") -> "tuple[ModelRuntime, ModelFile]":
    """Loads the model with a progress line; returns it and the file that it came from."""
    from imp_service.core import open_file
    from imp_service.generation import load_model as load_whole_model

    file = open_file(config)
    line = LoadingLine()
    try:
        return load_whole_model(config, file, line), file
    finally:
        line.clear()
