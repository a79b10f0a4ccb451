"""Tokenizers that were written to harm are refused, or read any text, in little time."""

from __future__ import annotations

import time

import pytest

from imp_service.text import Tokenizer, TokenizerInvalid
from support.hostile_tokenizers import KINDS, PATTERNS, hostile_files
from support.hub_tokenizers import library_of

N_ROWS = 1000
# Of this process: a machine that is busy counts nothing.
MOST_SECONDS = 10.0
RUNS = ("a", "z", "q", "k", "x", "b", "d", "世", " ", "1")
TEXTS = (
    "Hello world, 123 naïve\n\n  世界 é\x00 <think> </s>",
    *(run * n + end for run in RUNS for n, end in ((40, "!"), (300, ""))),
    "",
)


def is_refused(content: bytes) -> bool:
    """Whether the file is refused. If not, it reads texts."""
    metadata = {"model_type": "llama", "tokenizer.json": content}
    try:
        tokenizer = Tokenizer.from_directory(metadata, n_rows=N_ROWS)
    except TokenizerInvalid:
        return True
    tokenizer.require_rows(N_ROWS)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        tokenizer.decode(ids)
        assert len(tokenizer.encode_with_offsets(text).ids) == len(ids) < 64 * (len(text.encode()) + 2)
    return False


def check(number: int, step: int = 10) -> None:
    """Every `step`th file, from this one on."""
    outcomes = set()
    for name, content in list(hostile_files())[number::step]:
        began = time.process_time()
        outcomes.add(is_refused(content))
        assert time.process_time() - began < MOST_SECONDS, name
    assert outcomes == {True, False}


def test_t55_a_hostile_tokenizer_is_refused_or_works() -> None:
    check(3, 50)


@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_t55_every_hostile_tokenizer_is_refused_or_works(number: int) -> None:
    check(number)


@pytest.mark.parametrize("kind", KINDS)
def test_t55_the_files_that_they_were_made_of_work(kind: str) -> None:
    assert not is_refused(library_of(kind).to_str().encode())


def test_t55_a_pattern_is_tried_on_the_characters_that_it_names() -> None:
    from imp_service.text.directory.pattern_cost import is_superlinear

    for pattern in ("(z|z)*Q", "(?:q|qq)+$", "(?:界+)+$", "(x+x+)+y", "((d*)*)*e"):
        assert is_superlinear(pattern), pattern
    assert not is_superlinear(r"\p{L}+|\d{1,3}|z?[^q\s]+|x y")
    assert len(PATTERNS) > 30
