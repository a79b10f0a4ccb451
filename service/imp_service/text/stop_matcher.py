"""Finds stop strings in a growing text: the match that ends first; the longest if several end at the same byte."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StringMatch:
    """A stop string that was found: `text[start:end]`, in bytes."""

    index: int
    start: int
    end: int


class StopStrings:
    """The strings of one request, compiled: an Aho-Corasick automaton over their UTF-8.

    Immutable; the request's sequences share it. A byte takes at most two look-ups on average, for any strings.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = tuple(strings)
        self._lengths = [len(string.encode()) for string in strings]
        self._next: list[dict[int, int]] = [{}]
        self._fallback = [0]
        # For each state the longest string that the text ends with, or None.
        self.completes: list[int | None] = [None]
        # For each state the number of bytes at the end of the text that may begin a string.
        self.n_open = [0]
        for index, string in enumerate(strings):
            self._insert(string.encode(), index)
        self._link()

    def length(self, index: int) -> int:
        """Bytes of a string."""
        return self._lengths[index]

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte. In state 0 no string has begun."""
        while state and byte not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(byte, 0)

    def _insert(self, pattern: bytes, index: int) -> None:
        state = 0
        for depth, byte in enumerate(pattern, start=1):
            if byte not in self._next[state]:
                self._next[state][byte] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self.completes.append(None)
                self.n_open.append(depth)
            state = self._next[state][byte]
        if pattern and self.completes[state] is None:
            self.completes[state] = index

    def _link(self) -> None:
        queue = deque((0, byte, child) for byte, child in self._next[0].items())
        while queue:
            parent, byte, state = queue.popleft()
            queue.extend((state, next_byte, child) for next_byte, child in self._next[state].items())
            fallback = self._fallback[state] = self.step(self._fallback[parent], byte) if parent else 0
            if self.completes[state] is None:
                self.completes[state] = self.completes[fallback]
            if not self._next[state]:
                # No string begins with this one, so only a suffix of it may begin another.
                self.n_open[state] = self.n_open[fallback]


class StopMatcher:
    """Follows one sequence's bytes."""

    __slots__ = ("_n_bytes", "_state", "_strings")

    def __init__(self, strings: StopStrings) -> None:
        self._strings = strings
        self._state = 0
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes fed so far."""
        return self._n_bytes

    @property
    def n_held(self) -> int:
        """The number of bytes at the end of the text that may begin a stop string."""
        return self._strings.n_open[self._state]

    def feed(self, data: bytes, *, may_end: bool) -> StringMatch | None:
        """Reads more bytes, up to the first match.

        With `may_end` false a match is ignored and its text is not held back. Its bytes may still begin a later match.
        """
        strings, state = self._strings, self._state
        for offset, byte in enumerate(data, start=1):
            state = strings.step(state, byte)
            index = strings.completes[state]
            if index is not None and may_end:
                end = self._n_bytes + offset
                self._state, self._n_bytes = state, end
                return StringMatch(index, end - strings.length(index), end)
        self._state, self._n_bytes = state, self._n_bytes + len(data)
        return None

    def mark(self) -> tuple[int, int]:
        """The state, to pass to `rewind`."""
        return self._state, self._n_bytes

    def rewind(self, mark: tuple[int, int]) -> None:
        """Goes back to a state of `mark`."""
        self._state, self._n_bytes = mark
