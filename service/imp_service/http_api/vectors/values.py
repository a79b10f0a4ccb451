"""Kinds of values that only these calls take."""

from __future__ import annotations

from typing import Any

from imp_service.api.vectors import TRUNCATIONS
from imp_service.http_api.requests.values import entries, expected, flag, known_members, within

# The names of prompts that clients spell in other ways.
INPUT_TYPES = {
    "query": "query",
    "search_query": "query",
    "document": "document",
    "passage": "document",
    "search_document": "document",
}
SIDES = {"left": "left", "right": "right"}


def truncation(value: Any) -> str:
    """What is cut: true is the end, as in TEI; or a word of Cohere's."""
    if isinstance(value, bool):
        return "end" if value else "none"
    if isinstance(value, str) and value and value.lower() in TRUNCATIONS:
        return value.lower()
    raise expected('true, false, "NONE", "START" or "END"', value)


def direction(value: Any) -> str:
    """The side that is cut, as TEI spells it."""
    if isinstance(value, str) and value.lower() in SIDES:
        return value.lower()
    raise expected('"Left" or "Right"', value)


def input_type(value: Any) -> str:
    """The name of a prompt."""
    if isinstance(value, str) and value in INPUT_TYPES:
        return INPUT_TYPES[value]
    raise expected(" or ".join(f'"{name}"' for name in INPUT_TYPES), value)


def negated(value: Any) -> bool:
    """The opposite of true or false."""
    return not flag(value)


def documents(value: Any) -> tuple[str, ...]:
    """Documents: strings, or objects with a text."""
    return tuple(within(f"[{i}]", _document, each) for i, each in enumerate(entries(value)))


def texts_or_objects(value: Any) -> tuple[str, ...]:
    """One document, or a list of them. Whether it was one is known by the value itself."""
    return documents(value) if isinstance(value, list) else (_document(value),)


def _document(value: Any) -> str:
    if isinstance(value, dict):
        value = known_members(value, ("text",)).get("text")
    if not isinstance(value, str):
        raise expected("a string, or an object with text", value)
    return value
