"""The cost of masks: a sequence whose masks take too long is ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from imp_service.text import ConstraintCompiler, ConstraintKind, ConstraintSpec, FieldInvalid, TextLimits, Tokenizer
from imp_service.text.constraints import state as state_module
from imp_service.text.constraints.program import ConstraintProgram
from support.growth import ATTEMPTS
from support.tiny_vocabularies import byte_level

TOKENIZER = Tokenizer.from_metadata(byte_level())

AMBIGUOUS = ConstraintSpec(ConstraintKind.GBNF, 'root ::= root root root | "a" root "a" | "a" root | root "a" | "a"')


@pytest.fixture
def program() -> Iterator[ConstraintProgram]:
    """A grammar whose every text has many derivations."""
    compiler = ConstraintCompiler(TOKENIZER, vocab_size=TOKENIZER.vocab_size, limits=TextLimits())
    yield compiler.compile(AMBIGUOUS)
    compiler.close()


@pytest.mark.long
def test_txt_32_an_ambiguous_grammar_ends_before_its_masks_take_long(
    program: ConstraintProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of its rows grows with the text, which the library's own limits do not cover."""
    monkeypatch.setattr(state_module, "MASK_SECONDS", 0.01)

    def last_of_all() -> float:
        """Returns the processor time of the output that ends the sequence."""
        state, began = program.start(), 0.0
        with pytest.raises(FieldInvalid, match="needs more memory or time"):
            for _ in range(100_000):
                began = time.thread_time()
                assert state.accept(ord("a"))
                state.mask()
        return time.thread_time() - began

    # The cost grows in small steps, so the one that exceeds the limit is not far above it. Several attempts: another
    # process may disturb one.
    assert any(0.01 < last_of_all() < 0.2 for _ in range(ATTEMPTS))


def test_txt_32_a_mask_that_takes_longer_than_the_limit_ends_its_sequence(
    program: ConstraintProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is a stand-in: each mask takes as long as the test says."""
    clock = SimpleNamespace(thread_time=lambda: next(times))
    state = program.start()
    limit = 0.125
    monkeypatch.setattr(state_module, "MASK_SECONDS", limit)
    monkeypatch.setattr(state_module, "time", clock)
    times = iter([1.0, 1.0 + limit, 2.0, 2.0 + limit, 3.0, 3.25])
    for _ in range(2):
        assert any(state.mask())
        assert state.accept(ord("a"))
    with pytest.raises(FieldInvalid, match="needs more memory or time") as caught:
        state.mask()
    assert caught.value.path == "constraint.gbnf"
    assert list(times) == [], "three masks were computed"
