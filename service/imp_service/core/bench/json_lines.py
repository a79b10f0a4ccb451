"""Files of JSON lines, plain or compressed with gzip, whose values are texts or token ids."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from imp_service.core.errors import field_invalid

Encode = Callable[[str], list[int]]


def json_lines(path: Path, field: str) -> Iterator[tuple[str, Any]]:
    """The values of a file of JSON lines, each with its place. Errors name the option `field`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield f"{path}, line {number}", _parsed(line, f"{path}, line {number}", field)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise field_invalid(field, f"{path}: {error}") from None


def _parsed(line: str, place: str, field: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise field_invalid(field, f"{place}: {error}; expected a JSON object") from None


def token_ids(given: object, encode: Encode | None) -> list[int]:
    """The tokens of a text or of a list of ids. Raises ValueError or TypeError."""
    if isinstance(given, list) and all(isinstance(each, int) and each >= 0 for each in given):
        return given
    if not isinstance(given, str):
        raise TypeError("neither a text nor a list of token ids")
    if encode is None:
        raise ValueError("a text, but random weights have no tokenizer: give token ids")
    return encode(given)
