"""The arguments of a call as templates use them: as an object, or as its JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping


class JsonArguments(dict[str, object]):
    """An object that is its JSON text where a template adds it to a text, as the templates of DeepSeek do."""

    def __init__(self, value: Mapping[str, object], text: str | None = None) -> None:
        super().__init__(value)
        # Not readable for a template.
        self._text = json.dumps(value, ensure_ascii=False) if text is None else text


def as_operand(value: object, other: object) -> object:
    """An operand of `+`: arguments are text if the other one is text."""
    return value._text if isinstance(value, JsonArguments) and isinstance(other, str) else value
