"""Progress lines on a terminal: of a measurement, and of a model that is loaded."""

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile
    from imp_service.generation import ModelRuntime


class Progress:
    """One line on a terminal's stderr that is written over; nothing where nobody looks."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def tell(self, line: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{line} …")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


QUIET_SECONDS = 0.5


class LoadingLine:
    """Shows how far a load is where it takes time and someone looks. Called between reads, so Ctrl-C ends a load."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // max(1, total)
        if sys.stderr.isatty() and percent != self._shown and time.monotonic() - self._begin > QUIET_SECONDS:
            self._shown = percent
            sys.stderr.write(f"\rloading {percent:3} %")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def load_model(config: "Config") -> "tuple[ModelRuntime, ModelFile]":
    """The model, ready to generate, and the file that it came from."""
    from imp_service.core import open_file
    from imp_service.generation import load_model as load_whole_model

    file = open_file(config)
    line = LoadingLine()
    try:
        return load_whole_model(config, file, line), file
    finally:
        line.clear()
