"""Patterns of a dialect's framing, matched byte by byte.

In the text of a pattern, a blank matches any or no white space, $name the name of a function, $key the name of a
parameter, $id the id of a call, and $index its number, which imp does not use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

# The most white space that a blank matches, and the longest name.
MAX_BLANKS = 16
MAX_NAME_BYTES = 128
BLANKS = b" \t\r\n"
BLANK = " "
_STEPS = re.compile(r"\$name|\$key|\$index|\$id| |[^$ ]+")
# A name has no control characters, blanks, quotes or brackets.
_NOT_IN_NAMES = frozenset(range(0x21)) | frozenset(b'"\\<>[]{}\x7f')


def is_name(text: str) -> bool:
    """Whether a gap can match this text."""
    data = text.encode("utf-8", "replace")
    return 1 <= len(data) <= MAX_NAME_BYTES and not _NOT_IN_NAMES & set(data)


@dataclass(frozen=True)
class Pattern:
    """A text with gaps. The last `n_ahead` bytes are lookahead: they must follow, but are not part of the match."""

    source: str
    n_ahead: int = 0

    @cached_property
    def steps(self) -> tuple[bytes | str, ...]:
        """The steps in order: bytes are literals, strings are names of gaps."""
        return _steps(self.source)

    @property
    def most_bytes(self) -> int:
        """The length of the longest text that it matches."""
        limits = {BLANK: MAX_BLANKS}
        return sum(len(step) if isinstance(step, bytes) else limits.get(step, MAX_NAME_BYTES) for step in self.steps)


@lru_cache(maxsize=1024)
def _steps(source: str) -> tuple[bytes | str, ...]:
    found = _STEPS.findall(source)
    return tuple(each if each == BLANK or each.startswith("$") else each.encode() for each in found)


@dataclass(frozen=True, slots=True)
class Gap:
    """The match of a gap: `data[start:end]` of the text that was read."""

    name: str
    start: int
    end: int


class PatternMatcher:
    """Matches one pattern incrementally. One byte of lookahead is enough for each step."""

    __slots__ = ("_at", "_n_read", "_n_step", "_steps", "gaps")

    def __init__(self, pattern: Pattern) -> None:
        self._steps = pattern.steps
        self._at = 0
        # Bytes read in this step, and in all.
        self._n_step = 0
        self._n_read = 0
        # The complete gaps.
        self.gaps: list[Gap] = []

    @property
    def is_matched(self) -> bool:
        """The whole pattern was read."""
        return self._at == len(self._steps)

    def feed(self, byte: int) -> bool:
        """Reads a byte. False if the pattern does not match."""
        while True:
            step = self._steps[self._at]
            if isinstance(step, bytes):
                if byte != step[self._n_step]:
                    return False
                self._take()
                if self._n_step == len(step):
                    self._advance()
                return True
            if step == BLANK:
                if byte in BLANKS:
                    self._take()
                    return self._n_step <= MAX_BLANKS
            elif byte not in _NOT_IN_NAMES and byte != self._terminator():
                self._take()
                return self._n_step <= MAX_NAME_BYTES
            elif not self._n_step:
                return False
            else:
                self.gaps.append(Gap(step, self._n_read - self._n_step, self._n_read))
            self._advance()

    def _terminator(self) -> int:
        # A gap ends where a literal begins. White space before the literal ends it too.
        return next(step[0] for step in self._steps[self._at + 1 :] if isinstance(step, bytes))

    def _take(self) -> None:
        self._n_step += 1
        self._n_read += 1

    def _advance(self) -> None:
        self._at += 1
        self._n_step = 0


def newline_forms(text: str, most: int) -> tuple[str, ...]:
    """The text with 0 to `most` line breaks before it."""
    return tuple("\n" * n + text for n in range(most + 1))
