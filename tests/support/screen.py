"""A model of a terminal's screen: all lines that it received, and a cursor."""

from __future__ import annotations

import io
import re

_SEQUENCE = re.compile(r"\x1b\[(\d*)([AJm]|\d*m)|\x1b\[[\d;]*m")


class Screen(io.StringIO):
    """A stream that acts as a terminal. Fails at a control sequence that the writer of answers does not need."""

    encoding = "utf-8"

    def __init__(self, n_columns: int, n_rows: int) -> None:
        super().__init__()
        self.n_columns, self.n_rows = n_columns, n_rows
        self.lines = [""]
        self.row = self.column = 0
        self.n_bytes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.n_bytes += len(text.encode())
        rest = text
        while rest:
            if rest[0] == "\x1b":
                found = _SEQUENCE.match(rest)
                assert found is not None, f"an unexpected sequence: {rest[:12]!r}"
                self._control(found)
                rest = rest[found.end() :]
                continue
            self._show(rest[0])
            rest = rest[1:]
        return len(text)

    def _control(self, found: re.Match[str]) -> None:
        if found[2] == "A":
            self.row -= int(found[1])
            assert len(self.lines) - self.n_rows <= self.row >= 0, "above the screen"
        elif found[2] == "J":
            del self.lines[self.row + 1 :]
            self.lines[self.row] = self.lines[self.row][: self.column]

    def _show(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n" or self.column == self.n_columns:
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.lines):
                self.lines.append("")
        if character not in "\r\n":
            assert character.isprintable(), f"a control character: {character!r}"
            self.lines[self.row] = self.lines[self.row][: self.column].ljust(self.column) + character
            self.column += 1

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)
