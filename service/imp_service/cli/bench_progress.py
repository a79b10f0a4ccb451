"""The line that says what imp bench is doing."""

import sys


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
