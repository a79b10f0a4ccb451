"""Parses JSON from a caller strictly: with limits of size and depth, and without NaN and repeated keys."""

from __future__ import annotations

import json
import math
import re

from imp_service.text.errors import FieldInvalid

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?+|[\[{]|[\]}]', re.DOTALL)


def parse_strict_json(text: str, path: str, *, max_bytes: int, max_depth: int) -> object:
    """The value; `FieldInvalid` names `path`."""
    n_bytes = len(text.encode("utf-8", "surrogatepass"))
    if n_bytes > max_bytes:
        raise FieldInvalid(path, f"{n_bytes} bytes, limit {max_bytes}")
    # Before parsing: the library's parser recurses.
    depth = json_depth(text)
    if depth > max_depth:
        raise FieldInvalid(path, f"nested {depth} deep, limit {max_depth}")

    def refuse_constant(name: str) -> object:
        raise FieldInvalid(path, f"{name} is not JSON")

    def finite(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise FieldInvalid(path, f"number {digits[:32]} is out of range")
        return value

    def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise FieldInvalid(path, f"key {repeated[:64]!r} occurs twice")
        return members

    try:
        value: object = json.loads(
            text, object_pairs_hook=without_repeats, parse_constant=refuse_constant, parse_float=finite
        )
        # Escapes may spell half a character.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise FieldInvalid(path, f"not JSON: {error.msg} at character {error.pos}") from error
    except UnicodeEncodeError as error:
        raise FieldInvalid(path, "contains an unpaired surrogate") from error
    except ValueError as error:
        raise FieldInvalid(path, f"not JSON: {error}") from error
    return value


def json_depth(text: str) -> int:
    """The nesting depth of brackets, whether or not they match."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        bracket = match.group()
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest
