"""Reads our own vocabularies and test vectors (texts, llama.cpp's ids), which tools/make_vocabularies.py writes."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "data" / "vocabularies"
BYTE_LEVEL = "gpt2"
OTHER_KINDS = ("llama", "t5", "bert")


def _read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@cache
def texts() -> tuple[str, ...]:
    """Returns the texts on which the vocabularies were trained; the vectors use the same texts."""
    return tuple(_read("texts.json"))


def vocabulary(rule: str) -> dict[str, Any]:
    """Returns a vocabulary as metadata of a model file: OTHER_KINDS, or byte-level with this `tokenizer.ggml.pre`."""
    found = _read("vocabularies.json")
    return dict(found[rule]) if rule in OTHER_KINDS else {**found[BYTE_LEVEL], "tokenizer.ggml.pre": rule}


@cache
def vectors() -> dict[str, dict[int, tuple[int, ...]]]:
    """Returns rule -> number of a text -> its ids. The file stores ids that several rules share once."""
    found: dict[str, dict[int, tuple[int, ...]]] = {}
    for number, variants in enumerate(_read("vectors.json")):
        for ids, rules in variants:
            for rule in rules:
                found.setdefault(rule, {})[number] = tuple(ids)
    return found


def _has(category: str) -> Callable[[str], bool]:
    return lambda text: any(unicodedata.category(character).startswith(category) for character in text)


def _turns_upper(text: str) -> bool:
    return any(first.islower() and second.isupper() for first, second in itertools.pairwise(text))


_MARKS, _NUMBERS = _has("M"), _has("N")
# Rule -> texts for which llama.cpp is no oracle, because it differs from the model's own tokenizer.json.
DEPARTURES: dict[str, Callable[[str], bool]] = {
    # Their patterns name \p{M}, which llama.cpp's do not.
    **dict.fromkeys(("tekken", "gpt-4o"), _MARKS),
    # Words end where lower case turns into upper; llama.cpp leaves them together.
    "kimi-k2": lambda text: _MARKS(text) or _turns_upper(text),
    "youtu": _turns_upper,
    # Accents are stripped by their category; llama.cpp has a table of letters.
    "bert": _MARKS,
    # Digits are cut one by one; llama.cpp leaves them together.
    "deepseek-llm": _NUMBERS,
    # Digits are matched after the byte alphabet is applied, which gives most other scripts some digits.
    "falcon": lambda text: _NUMBERS(text) or not text.isascii(),
}
# Rules that first apply NFC, which llama.cpp does not.
COMPOSING = ("mpt", "command-r", "qwen2", "qwen35")


def as_oracle_reads(rule: str, text: str) -> str:
    """Returns the text with the normalization that llama.cpp leaves out."""
    if rule in COMPOSING:
        return unicodedata.normalize("NFC", text)
    return text.strip() if rule == "t5" else text
