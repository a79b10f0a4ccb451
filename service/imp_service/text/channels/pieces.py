"""Pieces of an output, in order: each byte belongs to a channel or to the framing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto


class PieceKind(Enum):
    """The meaning of a piece."""

    CONTENT = auto()
    REASONING = auto()
    # The framing, which is not output.
    MARKER = auto()
    # Parts of a call: the name of its function, the id that the model wrote, and its arguments as JSON, ...
    NAME = auto()
    ID = auto()
    ARGUMENTS = auto()
    # ... or its arguments in the dialect's own notation,
    NOTATED = auto()
    # ... or the name of a parameter and its value as text.
    KEY = auto()
    VALUE = auto()
    # Events without bytes: the head of a call, a value, or a call is complete.
    HEAD_END = auto()
    VALUE_END = auto()
    CALL_END = auto()


GAPS = {"$name": PieceKind.NAME, "$id": PieceKind.ID, "$index": PieceKind.MARKER, "$key": PieceKind.KEY}
_ENDS = frozenset({PieceKind.HEAD_END, PieceKind.VALUE_END, PieceKind.CALL_END})


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive bytes of one kind."""

    kind: PieceKind
    data: bytes = b""


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces, with consecutive ones of the same kind merged."""
    found: list[Piece] = []
    for piece in pieces:
        if not piece.data and piece.kind not in _ENDS:
            continue
        if found and found[-1].kind is piece.kind and piece.kind not in _ENDS:
            found[-1] = Piece(piece.kind, found[-1].data + piece.data)
        else:
            found.append(piece)
    return found
