"""Large replies, serialized in pieces.

protobuf serializes a message in one call that holds Python's lock, so that the event loop's thread waits as well.
Repeated fields may be serialized in pieces: a parser merges the concatenated pieces into one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import Message

LENGTH_DELIMITED = 2


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message that has been serialized."""

    content: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The same method as a message has."""
        return self.content


Reply = Message | Encoded


class Pieces:
    """The pieces of one message, as they are written, and how large they are."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.n_bytes = 0

    def add(self, piece: bytes) -> None:
        """Adds serialized bytes of the message."""
        self._pieces.append(piece)
        self.n_bytes += len(piece)

    def add_field(self, number: int, contents: Iterable[bytes]) -> None:
        """Adds a field of type string, bytes or message, whose value is the concatenated contents."""
        pieces = list(contents)
        self.add(_varint(number << 3 | LENGTH_DELIMITED) + _varint(sum(map(len, pieces))))
        for piece in pieces:
            self.add(piece)

    def joined(self) -> Encoded:
        """The whole message."""
        return Encoded(b"".join(self._pieces))

    @classmethod
    def of(cls, *parts: Pieces) -> Pieces:
        """A message of these parts."""
        whole = cls()
        for part in parts:
            whole._pieces += part._pieces
            whole.n_bytes += part.n_bytes
        return whole


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
