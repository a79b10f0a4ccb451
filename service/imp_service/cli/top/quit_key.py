"""The key q on a terminal: ends a live view."""

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Self

QUIT = (b"q", b"Q")


class QuitKey:
    """While the block runs, q calls `on_quit` from a thread. Does nothing if stdin is not a terminal."""

    def __init__(self, on_quit: Callable[[], object]) -> None:
        self._on_quit = on_quit
        self._thread = threading.Thread(target=self._read, name="imp-keys")
        self._is_terminal = sys.stdin.isatty()
        self.is_pressed = False

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._descriptor)
            self._wake_end, self._wake = os.pipe()
            tty.setcbreak(self._descriptor)  # a key at a time, not shown; Ctrl-C stays a signal
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_terminal:
            os.close(self._wake)
            self._thread.join()
            os.close(self._wake_end)
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._descriptor, self._wake_end], [], [])
            if self._wake_end in ready:
                return
            key = os.read(self._descriptor, 1)
            if key in QUIT:
                self.is_pressed = True
                self._on_quit()
            if key in (*QUIT, b""):
                return
