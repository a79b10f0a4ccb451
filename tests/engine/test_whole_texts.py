"""Texts whose rows are all evaluated in one step: none is cut, and none waits for ever."""

from __future__ import annotations

import random

import pytest

from imp_service import _core
from support.engine.script_engine import Sampler
from support.engine.vector_engine import VectorEngine, expected, text_of
from support.oracles.script_oracle import continuation, prompt_of

WHOLE = pytest.mark.parametrize("kind", ["encoder", "mean"])


@WHOLE
def test_emb_12_a_text_is_as_long_as_a_step_and_no_longer(kind: str) -> None:
    engine = VectorEngine(kind, step_tokens=64, max_context=256)
    text = text_of(64, 1)
    ticket = engine.embed(text)
    engine.turn_until_idle()
    assert engine.vector(ticket).tobytes() == expected(text).tobytes()
    with pytest.raises(_core.InvalidArgument, match="65 tokens exceed the context of 64") as refused:
        engine.embed(text_of(65, 1))
    assert refused.value.reason == "CONTEXT_TOO_LONG"
    assert refused.value.details == {"prompt_tokens": "65", "max_context_tokens": "64"}
    with pytest.raises(_core.InvalidArgument, match="exceed the context of 40"):
        VectorEngine(kind, step_tokens=64, max_context=40).embed(text_of(41, 1))


def test_emb_12_the_last_row_of_a_causal_model_needs_no_whole_text() -> None:
    engine = VectorEngine("last", step_tokens=64, max_context=256)
    text = text_of(256, 1)
    ticket = engine.embed(text)
    engine.turn_until_idle()
    assert engine.vector(ticket).tobytes() == expected(text).tobytes()
    with pytest.raises(_core.InvalidArgument, match="257 tokens exceed the context of 256"):
        engine.embed(text_of(257, 1))


@pytest.mark.parametrize(("kind", "length"), [("encoder", 33), ("encoder", 64), ("mean", 60)])
def test_emb_12_a_long_text_behind_a_thousand_short_ones_has_its_turn(kind: str, length: int) -> None:
    """Short ones behind it fill steps that have no room for it, but only one."""
    engine = VectorEngine(kind, step_tokens=64, max_running=16, max_waiting=4096)
    before = [text_of(7, salt) for salt in range(1000)]
    after = [text_of(7, salt) for salt in range(1000, 1500)]
    long = text_of(length, 4000)
    tickets = [engine.embed(text) for text in before]
    ticket = engine.embed(long)
    tickets += [engine.embed(text) for text in after]
    engine.turn_until_idle()
    turn = max(engine.steps_of(before))
    (step,) = engine.steps_of([long])
    assert turn - 1 <= step <= turn + 1
    for text, short in zip([*before, *after], tickets, strict=True):
        assert engine.vector(short).tobytes() == expected(text).tobytes()
    assert engine.vector(ticket).tobytes() == expected(long).tobytes()


@WHOLE
def test_emb_12_urgent_short_texts_do_not_overtake_a_long_one_for_ever(kind: str) -> None:
    """Steps begin with short texts that found no room in the one before. Once, the long one is the first of them."""
    engine = VectorEngine(kind, step_tokens=64, max_running=16)
    long = text_of(60, 4000)
    ticket = engine.embed(long)
    for turn in range(6):
        for salt in range(12):
            engine.embed(text_of(7, 100 * turn + salt), priority=5)
        engine.turn()
    (step,) = engine.steps_of([long])
    assert step <= 2
    assert engine.vector(ticket).tobytes() == expected(long).tobytes()


@WHOLE
def test_emb_12_steps_are_full_although_no_text_is_cut(kind: str) -> None:
    engine = VectorEngine(kind, step_tokens=64, max_running=16, max_waiting=4096)
    rng = random.Random(2)
    texts = [text_of(rng.choice([5, 9, 20, 40, 64]), salt) for salt in range(300)]
    tickets = [engine.embed(text) for text in texts]
    engine.turn_until_idle()
    for text, ticket in zip(texts, tickets, strict=True):
        assert engine.vector(ticket).tobytes() == expected(text).tobytes()
    steps = [[(rows.first_position, len(rows.tokens)) for rows in step] for step in engine.core.forwards]
    assert all(sum(n for _, n in step) <= 64 and all(first == 0 for first, _ in step) for step in steps)
    assert len(steps) < 1.25 * sum(map(len, texts)) / 64


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("length", [30, 60, 64])
def test_emb_12_generations_do_not_keep_a_long_text_out(length: int) -> None:
    """Sixteen streams leave 48 rows of a step. A longer text takes the place of some of their rows, once."""
    engine = VectorEngine("mean", step_tokens=64, max_running=20, n_blocks=128, prefill_per_decode=6)
    prompts = [prompt_of(5, salt) for salt in range(16)]
    streams = [engine.generate(prompt, max_outputs=40, sampling=Sampler(seed=1)) for prompt in prompts]
    for _ in range(6):
        engine.turn()
    n_before = len(engine.core.forwards)
    texts = [text_of(length, salt) for salt in range(3)]
    tickets = [engine.embed(text) for text in texts]
    for _ in range(8):
        engine.turn()
    for text, ticket in zip(texts, tickets, strict=True):
        assert engine.vector(ticket).tobytes() == expected(text).tobytes()
    for number, step in enumerate(engine.steps_of(texts)):
        assert step <= n_before + 2 * (number + 1)
    engine.turn_until_idle()
    for prompt, stream in zip(prompts, streams, strict=True):
        assert engine.tokens(stream) == continuation(prompt, 40, Sampler(seed=1))


@WHOLE
def test_emb_12_a_text_that_waits_for_its_step_may_be_preempted_or_cancelled(kind: str) -> None:
    for cancels in (False, True):
        engine = VectorEngine(kind, step_tokens=64)
        first, second = text_of(40, 1), text_of(50, 2)
        engine.embed(first)
        sequence = engine.sequence()
        ticket = engine.embed(second, sequence=sequence)
        engine.turn()
        assert engine.core.held(sequence) == 0
        if cancels:
            engine.core.end(ticket, sequence)
        else:
            assert engine.core.preempt(sequence)
        third = engine.embed(first[::-1])
        engine.turn_until_idle()
        assert engine.vector(third).tobytes() == expected(first[::-1]).tobytes()
        assert engine.finished(ticket).reason == ("cancelled" if cancels else "max_tokens")
        engine.assert_at_rest()
