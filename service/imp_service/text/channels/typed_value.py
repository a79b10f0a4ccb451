"""Converts a value that a model writes as plain text to JSON of a type that its schema allows, incrementally."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable

from imp_service.text.channels.schema_types import STRING, type_of

# If the value may be a string, a longer text is not treated as a number or literal.
MAX_SCALAR = 64
_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}


class TypedValue:
    """One value. If the text is valid JSON of an allowed type other than string, it is that value, else a string."""

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Text whose type is not known yet.
        self._held = ""
        # Writes text of the type, once that is known.
        self._write: Callable[[str], str] | None = None
        self._end = ""
        if types == STRING:
            self._begin_string()
        else:
            self._begun = ""

    def feed(self, data: bytes) -> str:
        """The JSON of further bytes of the text."""
        return self._add(self._decoder.decode(data))

    def finish(self, *, is_complete: bool = True) -> str:
        """The rest of the JSON.

        Call it at the end of the text. If the end of the output cuts the value, its JSON stays open.
        """
        written = self._add(self._decoder.decode(b"", True))
        if self._write is None:
            held, self._held = self._held, ""
            if not is_complete:
                return written + held.strip()
            if (scalar := self._scalar(held)) is not None:
                return written + scalar
            self._begin_string()
            written += self._start(held)
        return written + self._take_begun() + (self._end if is_complete else "")

    def _add(self, text: str) -> str:
        if self._write is not None:
            return self._take_begun() + self._write(text) if text else ""
        self._held += text
        if self._is_json():
            self._begun, self._write = "", str
        elif len(self._held) > MAX_SCALAR:
            self._begin_string()
        else:
            return ""
        held, self._held = self._held, ""
        return self._start(held)

    def _is_json(self) -> bool:
        """Whether the text so far begins an array or object, which can be written incrementally."""
        first = self._held.lstrip()[:1]
        if (first == "{" and "object" in self._types) or (first == "[" and "array" in self._types):
            return True
        return len(self._held) > MAX_SCALAR and "string" not in self._types

    def _start(self, held: str) -> str:
        assert self._write is not None  # narrows
        return self._take_begun() + self._write(held)

    def _begin_string(self) -> None:
        self._begun, self._end, self._write = '"', '"', _escaped

    def _take_begun(self) -> str:
        begun, self._begun = self._begun, ""
        return begun

    def _scalar(self, text: str) -> str | None:
        """The text as a number or a literal of an allowed type, or None."""
        text = text.strip()
        text = _PYTHON_LITERALS.get(text, text)
        try:
            value = json.loads(text, parse_constant=_refuse)
        except ValueError:
            return None
        return text if type_of(value) in self._types - STRING else None


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _refuse(name: str) -> object:
    raise ValueError(name)
