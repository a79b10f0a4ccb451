"""Writes TOML literals, keys and dotted paths, and shortens texts for messages."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Literal

KeyPath = tuple[str, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def excerpt(text: str, most: int, *, keep: Literal["start", "end"] = "start") -> str:
    """At most `most` characters of an untrusted text, with control characters escaped, for messages."""
    if not text.isprintable():
        ends = text[:most] if keep == "start" else text[-most:]
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in ends)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…" if keep == "start" else "…" + text[len(text) - most + 1 :]


def write_string(text: str) -> str:
    # A JSON string is a TOML basic string, except that TOML wants DEL escaped and has no lone surrogates.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def write_literal(value: object) -> str:
    """One line of TOML for any value that `tomllib` can return."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return write_string(value)
        case Mapping():
            inside = ", ".join(f"{write_key(str(name))} = {write_literal(item)}" for name, item in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case Sequence():
            return "[" + ", ".join(write_literal(item) for item in value) + "]"
        case _:
            return str(value)


def write_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else write_string(name)


def write_path(path: KeyPath) -> str:
    return ".".join(write_key(name) for name in path)


def read_path(text: str) -> KeyPath | None:
    """The parts of a dotted key, quotes respected; None if `text` is not one."""
    if "\n" in text or "\r" in text:
        return None
    try:
        node: object = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    while isinstance(node, dict):
        if len(node) != 1:
            return None
        ((name, node),) = node.items()
        parts.append(name)
    return tuple(parts) if node == 0 and isinstance(node, int) else None


def read_value(text: str) -> object:
    """`text` as a TOML value, or `text` itself if it is not TOML: outside of a file, strings need no quotes."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if list(document) == ["value"] else text
