"""Finds out which of several patterns matches, incrementally."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imp_service.text.channels.pattern import Pattern, PatternMatcher
from imp_service.text.channels.pieces import GAPS, Piece, PieceKind


@dataclass(frozen=True, slots=True)
class PatternOption:
    """A pattern, and the reader's action when it has matched."""

    pattern: Pattern
    action: Callable[[], None]
    # The names that $name may match; None: any.
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """The option whose pattern matched, and the bytes after the match."""

    option: PatternOption
    pieces: list[Piece]
    rest: bytes


@dataclass(frozen=True, slots=True)
class Mismatch:
    """No pattern matches. Has all bytes since the marker."""

    rest: bytes


class PatternChoice:
    """The options at one position of an output. No pattern is a prefix of another."""

    def __init__(self, options: Sequence[PatternOption], marker: bytes) -> None:
        """`marker` was read before the patterns. It is held back together with them."""
        self._tried = [(PatternMatcher(option.pattern), option) for option in options]
        self.marker = marker
        self._read = b""

    @property
    def held(self) -> bytes:
        """All bytes that were read, including the marker."""
        return self.marker + self._read

    def feed(self, data: bytes) -> Match | Mismatch | None:
        """Reads up to the end of a match. None: undecided until more bytes are read."""
        for n, byte in enumerate(data, start=1):
            self._tried = [each for each in self._tried if each[0].feed(byte)]
            if not self._tried:
                return Mismatch(self._read + data)
            matcher, option = self._tried[0]
            if matcher.is_matched:
                read = self._read + data[:n]
                if not _names_a_function(matcher, option, read):
                    return Mismatch(self._read + data)
                n_kept = len(read) - option.pattern.n_ahead
                return Match(option, self._pieces(matcher, read[:n_kept]), read[n_kept:] + data[n:])
        self._read += data
        return None

    def named(self) -> list[Piece] | None:
        """Call it at the end of the output. Returns the pieces of a call whose name and id are complete, or None."""
        if not all(_has_name(*each) for each in self._tried):
            return None
        for matcher, option in self._tried:
            if _names_a_function(matcher, option, self._read):
                return self._pieces(matcher, self._read)
        return None

    def _pieces(self, matcher: PatternMatcher, read: bytes) -> list[Piece]:
        found, at = [Piece(PieceKind.MARKER, self.marker)], 0
        for gap in matcher.gaps:
            found += [Piece(PieceKind.MARKER, read[at : gap.start]), Piece(GAPS[gap.name], read[gap.start : gap.end])]
            at = gap.end
        return [*found, Piece(PieceKind.MARKER, read[at:])]


def _has_name(matcher: PatternMatcher, option: PatternOption) -> bool:
    """Whether the pattern has a name, and both the name and the id that it has are complete."""
    needed = {"$id"} & set(option.pattern.steps) | {"$name"}
    return needed <= {gap.name for gap in matcher.gaps}


def _names_a_function(matcher: PatternMatcher, option: PatternOption, read: bytes) -> bool:
    for gap in matcher.gaps:
        try:
            name = read[gap.start : gap.end].decode()
        except UnicodeDecodeError:
            return False
        if gap.name == "$name" and option.names is not None and name not in option.names:
            return False
    return True
