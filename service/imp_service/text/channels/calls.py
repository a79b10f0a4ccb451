"""Writes tool calls as deltas for the caller: first the name, then pieces of the arguments' JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from string import ascii_letters, digits

from imp_service.api.tool_calls import ToolCallDelta
from imp_service.text.channels.dialect import CallIdShape
from imp_service.text.channels.notation import Notation, NotationReader
from imp_service.text.channels.pieces import Piece, PieceKind
from imp_service.text.channels.schema_types import types_of_parameter
from imp_service.text.channels.tools import Tool
from imp_service.text.channels.typed_value import TypedValue

_ALPHABET = ascii_letters + digits


@dataclass(frozen=True, slots=True)
class CallIds:
    """The ids of the calls of one output: the same for the same request and seed."""

    shape: CallIdShape
    # Identifies this output: the seed, the digest of the prompt, the number of the sequence.
    origin: tuple[int | str, ...]

    def of(self, index: int, name: str = "", written: str = "") -> str:
        """The id of a call. `written`: the id that the model wrote."""
        return self.shape.prefix.replace("$name", name) + (written or self._made(index))

    def _made(self, index: int) -> str:
        digest = blake2b(repr((*self.origin, index)).encode(), digest_size=32).digest()
        number = int.from_bytes(digest)
        letters = []
        for _ in range(self.shape.length):
            number, letter = divmod(number, len(_ALPHABET))
            letters.append(_ALPHABET[letter])
        return "".join(letters)


class CallWriter:
    """Turns the pieces of calls into deltas."""

    def __init__(self, tools: Sequence[Tool], ids: CallIds, notation: Notation | None = None) -> None:
        self._schemas: Mapping[str, object] = {tool.name: tool.schema for tool in tools}
        self._ids = ids
        self._notation = notation
        self._notated: NotationReader | None = None
        self._index = -1
        self._name = b""
        self._given_id = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_parameters = 0
        self._value: TypedValue | None = None
        self._has_object = False

    def take(self, piece: Piece) -> ToolCallDelta | None:
        """The delta of a piece; None if it adds nothing."""
        match piece.kind:
            case PieceKind.NAME:
                self._name, self._given_id = piece.data, b""
            case PieceKind.ID:
                self._given_id = piece.data
            case PieceKind.HEAD_END:
                return self._open()
            case _:
                return self._more(self._arguments(piece))
        return None

    def finish(self) -> ToolCallDelta | None:
        """The last delta of a call that the end of the output cuts."""
        if self._value is not None:
            return self._more(self._value.finish(is_complete=False))
        return self._more(self._decoder.decode(b"", True))

    def _open(self) -> ToolCallDelta:
        self._index += 1
        self._n_parameters, self._value, self._has_object = 0, None, False
        self._notated = None if self._notation is None else NotationReader(self._notation)
        self._decoder.reset()
        name = self._name.decode()
        return ToolCallDelta(self._index, self._ids.of(self._index, name, self._given_id.decode()), name)

    def _arguments(self, piece: Piece) -> str:
        match piece.kind:
            case PieceKind.ARGUMENTS | PieceKind.NOTATED:
                return self._object(piece)
            case PieceKind.KEY:
                return self._begin_parameter(piece.data.decode())
            case PieceKind.VALUE if self._value is not None:
                return self._value.feed(piece.data)
            case PieceKind.VALUE_END if self._value is not None:
                value, self._value = self._value, None
                return value.finish()
            case PieceKind.CALL_END:
                return self._close()
        return ""

    def _object(self, piece: Piece) -> str:
        self._has_object = True
        if self._notated is None:
            return self._decoder.decode(piece.data)
        self._notated.feed(piece.data)
        return self._notated.take()

    def _begin_parameter(self, key: str) -> str:
        before = ", " if self._n_parameters else "{"
        self._n_parameters += 1
        self._value = TypedValue(types_of_parameter(self._schemas.get(self._name.decode()), key))
        return f"{before}{json.dumps(key, ensure_ascii=False)}: "

    def _close(self) -> str:
        rest = self._decoder.decode(b"", True)
        if self._has_object:
            return rest
        return "}" if self._n_parameters else "{}"

    def _more(self, arguments: str) -> ToolCallDelta | None:
        return ToolCallDelta(self._index, arguments=arguments) if arguments else None
