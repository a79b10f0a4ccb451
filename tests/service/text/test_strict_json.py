"""Strict JSON: the values of Python's json for what is valid, within limits that hold before anything is parsed."""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from typing import Any

import pytest

from imp_service.text import strict_json
from imp_service.text.errors import FieldInvalid
from imp_service.text.strict_json import MAX_PARTS, parse_strict_json

MOST = 4 * 1024**2
# Of an array that begins at character 7 and has 9,000 numbers. Python 3.13 has a message of its own for it.
TRAILING_COMMA = (
    "Expecting value at character 18007"
    if sys.version_info < (3, 13)
    else "Illegal trailing comma before end of array at character 18006"
)


def parsed(text: str) -> object:
    return parse_strict_json(text, "body", max_bytes=MOST, max_depth=64)


def refusal(text: str) -> str:
    with pytest.raises(FieldInvalid) as raised:
        parsed(text)
    return str(raised.value)


STRINGS = ["", "a", 'say "so"', "\\", "tab\there", "line\nfeed", "漢字", "🙂", "\u2028", "a" * 30, "\\" * 7 + '"' * 5]


def some_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(10 if depth < 4 else 7)
    if kind < 2:
        return draw.choice([0, 1, -1, 257, 2**40, True, False, None])
    if kind == 2:
        return draw.choice([0.5, -1e-9, 1e300, 3.25])
    if kind < 5:
        return "".join(draw.choice(STRINGS) for _ in range(draw.randrange(6)))
    if kind < 7:
        return [draw.choice([1, 22, 0.25, None, -7]) for _ in range(draw.randrange(40))]
    if kind == 7:
        return [some_value(draw, depth + 1) for _ in range(draw.randrange(6))]
    return {f"{'k' * draw.randrange(3)}{i}\\": some_value(draw, depth + 1) for i in range(draw.randrange(6))}


def spoiled(draw: random.Random, text: str) -> str:
    """Returns the text with a character changed, put in or left out."""
    if not text:
        return text
    at = draw.randrange(len(text))
    new = draw.choice(["", ",", "]", "[", '"', "\\", "}", "{", ":", " ", "1", "\\u", "\n", ",,"])
    return text[:at] + new + text[at + draw.randrange(2) :]


def as_python(text: str) -> object:
    """Returns what Python's json makes of the text; the class ValueError if it is not valid for imp."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return ValueError
    return value


@pytest.mark.parametrize("ascii_only", [False, True])
def test_htp_14_pieces_give_the_values_of_the_whole(monkeypatch: pytest.MonkeyPatch, ascii_only: bool) -> None:
    """Nearly every list and string is long enough to be cut out here, and is read in many pieces."""
    monkeypatch.setattr(strict_json, "LONG_CHARS", 4)
    monkeypatch.setattr(strict_json, "PIECE_CHARS", 3)
    short = strict_json._PIECE.pattern.replace("4096", "2")
    monkeypatch.setattr(strict_json, "_PIECE", strict_json.re.compile(short, strict_json.re.DOTALL))
    n_wrong = 0
    for seed in range(1500):
        draw = random.Random(seed)
        text = json.dumps(some_value(draw), ensure_ascii=ascii_only, indent=draw.choice([None, None, 1]))
        for _ in range(draw.randrange(3)):
            text = spoiled(draw, text)
        expected = as_python(text)
        try:
            found = parsed(text)
        except FieldInvalid:
            found = ValueError
            n_wrong += 1
        assert found == expected or (found is expected), (seed, text)
    assert 300 < n_wrong < 1200


@pytest.mark.parametrize("tail", ["", "\\", '\\"', '"', '"]', '"}', '"]}'])
def test_htp_14_a_long_string_without_end_is_no_json(tail: str) -> None:
    for text in ('{"a": ["' + "x\\n" * 2000 + tail, '"' + "x\\n" * 2000 + tail):
        assert (as_python(text) is ValueError) == (tail not in ('"]}',) or text[0] == '"') or tail == '"'
        if as_python(text) is ValueError:
            refusal(text)
        else:
            assert parsed(text) == as_python(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": [' + "1," * 9000 + "x]}", f"Expecting value at character {7 + 18000}"),
        ('{"a": [' + "1," * 9000 + "]}", TRAILING_COMMA),
        ('{"a": [' + "1," * 9000 + '1], "b": x}', f"Expecting value at character {7 + 18000 + 9}"),
        ('{"a": [' + "1," * 9000 + "1e999]}", "number 1e999 is out of range"),
        ('{"a": [' + "1," * 9000 + "NaN]}", "NaN is not JSON"),
        ('{"a": "' + "\\n" * 9000 + '\\ud800"}', "contains an unpaired surrogate"),
        ('{"a": "' + "\\n" * 9000 + '\\x"}', f"Invalid \\escape at character {7 + 18000}"),
    ],
)
def test_htp_14_an_error_in_a_long_value_names_its_place(text: str, said: str) -> None:
    assert said in refusal(text)


MANY: dict[str, str] = {
    "lists": "[" + "[]," * 1_300_000 + "[]]",
    "objects": "[" + "{}," * 1_300_000 + "{}]",
    "members": "{" + ",".join(f'"{i}":1' for i in range(380_000)) + "}",
    "strings": "[" + '"ab",' * 800_000 + '"ab"]',
    "numbers in short lists": "[" + ("[" + "1," * 30 + "1],") * 63_000 + "[]]",
    "depth": "[" * 2_000_000 + "]" * 2_000_000,
}


@pytest.mark.parametrize("what", MANY)
def test_htp_14_too_many_parts_are_refused_before_they_take_memory(what: str) -> None:
    tracemalloc.start()
    try:
        said = refusal(MANY[what])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert f"more than {MAX_PARTS}" in said if what != "depth" else "nested more than 64" in said
    assert peak < 16 * 1024**2  # the text as bytes, and the places of long values
