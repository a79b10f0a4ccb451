"""Pieces of an output: each byte belongs to a channel or to the framing, in the order in which it was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """What a piece is."""

    CONTENT = auto()
    REASONING = auto()
    # The framing: no output.
    MARKER = auto()
    # Of a call: the name of its function, the id that the model gave it, and its arguments as JSON, ...
    NAME = auto()
    ID = auto()
    ARGUMENTS = auto()
    # ... or parameter by parameter, the values as text.
    KEY = auto()
    VALUE = auto()
    # Without bytes: the head of a call, a value, a call is complete.
    HEAD_END = auto()
    VALUE_END = auto()
    CALL_END = auto()


GAPS = {"$name": Kind.NAME, "$id": Kind.ID, "$key": Kind.KEY}
_ENDS = frozenset({Kind.HEAD_END, Kind.VALUE_END, Kind.CALL_END})


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive bytes of one kind."""

    kind: Kind
    data: bytes = b""


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """The same with neighbours of one kind in one piece."""
    found: list[Piece] = []
    for piece in pieces:
        if not piece.data and piece.kind not in _ENDS:
            continue
        if found and found[-1].kind is piece.kind and piece.kind not in _ENDS:
            found[-1] = Piece(piece.kind, found[-1].data + piece.data)
        else:
            found.append(piece)
    return found
