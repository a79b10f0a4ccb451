"""Strings of model files and of their paths as users get them: on a terminal, in messages, as a label."""

from __future__ import annotations

_MOST = 256


def shown_text(value: object) -> str:
    """UTF-8 with replacement, on one line, without control characters; empty for a value that is no string.

    The core gives a string that is not UTF-8 as bytes, and Python gives a path with surrogates.
    """
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        return ""
    text = " ".join(value.decode("utf-8", "replace").split())
    return "".join(character for character in text if character.isprintable())[:_MOST].strip()
