"""Reads the JSON files of a model directory, with bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from imp_service.text.errors import TokenizerInvalid

MIB = 1 << 20
MAX_TOKENIZER_BYTES = 128 * MIB
MAX_FILE_BYTES = 4 * MIB
MAX_DEPTH = 64
# What half of a surrogate pair begins with in JSON. Both halves of a whole pair begin so too.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonObject:
    """An object of a file. Every error names the file and the path of the value."""

    def __init__(self, path: str, members: Mapping[str, Any]) -> None:
        self.path = path
        self.members = members

    def fail(self, name: str, message: str) -> TokenizerInvalid:
        return TokenizerInvalid(self._path(name), message)

    def text(self, name: str) -> str | None:
        value = self._typed(name, str, "a string")
        return value if isinstance(value, str) else None

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._typed(name, bool, "true or false")
        return default if value is None else bool(value)

    def token_id(self, name: str) -> int:
        value = self.members.get(name)
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self.fail(name, f"{value!r:.40}, expected a token id")
        return value

    def array(self, name: str) -> list[Any]:
        """An empty list if it is missing."""
        value = self._typed(name, list, "a list")
        return [] if value is None else value

    def object(self, name: str) -> JsonObject | None:
        value = self._typed(name, dict, "an object")
        return None if value is None else JsonObject(self._path(name), value)

    def objects(self, name: str) -> list[JsonObject]:
        """The objects of a list."""
        found = []
        for i, value in enumerate(self.array(name)):
            if not isinstance(value, dict):
                raise self.fail(f"{name}[{i}]", f"{_kind_of(value)}, expected an object")
            found.append(JsonObject(self._path(f"{name}[{i}]"), value))
        return found

    def _typed(self, name: str, kind: type, expected: str) -> Any:
        value = self.members.get(name)
        if value is not None and not isinstance(value, kind):
            raise self.fail(name, f"{_kind_of(value)}, expected {expected}")
        return value

    def _path(self, name: str) -> str:
        return f"{self.path}{'.' if ': ' in self.path else ': '}{name}"


def read_json_object(name: str, content: bytes, *, max_bytes: int = MAX_FILE_BYTES) -> JsonObject:
    """The object that a file holds. Raises TokenizerInvalid, which names the file."""
    if len(content) > max_bytes:
        raise TokenizerInvalid(name, f"more than {max_bytes} bytes")
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise _too_deep(name) from error  # Python 3.13 and later read such a text; _require_shallow rejects it
    except json.JSONDecodeError as error:
        raise TokenizerInvalid(name, f"not JSON: {error.msg} at line {error.lineno}") from error
    except ValueError as error:  # bytes that are not UTF-8, or a number of too many digits
        raise TokenizerInvalid(name, f"not JSON: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise TokenizerInvalid(name, f"{_kind_of(value)}, expected an object")
    _require_shallow(name, value)
    found = JsonObject(name, value)
    if _HALF.search(content):
        for place in _places_of_surrogates("", value):
            raise found.fail(place, "holds half of a surrogate pair")
    return found


def _require_shallow(name: str, value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if type(inner) in (dict, list)
        ]
        if not level:
            return
    raise _too_deep(name)


def _too_deep(name: str) -> TokenizerInvalid:
    return TokenizerInvalid(name, f"nested more than {MAX_DEPTH} deep")


def _places_of_surrogates(path: str, value: object) -> Iterator[str]:
    """The paths of texts that are not valid Unicode. For such a member name, the path of its object."""
    if isinstance(value, str):
        if not _is_unicode(value):
            yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            if _is_unicode(name):
                yield from _places_of_surrogates(f"{path}.{name}" if path else name, inner)
            else:
                yield path or "a name"
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _places_of_surrogates(f"{path}[{i}]", inner)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
    return "an object"
