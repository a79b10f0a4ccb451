"""Vectors of texts: their bits depend on the text alone. Refusals, failures, cancelled texts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.engine.script_engine import Failed, Sampler
from support.engine.vector_engine import KINDS, MEAN_DECODER, WIDTH, VectorEngine, expected, text_of, texts_of
from support.oracles.script_oracle import continuation, prompt_of
from support.oracles.vector_oracle import Vector, finished, hash_vector

EVERY_KIND = pytest.mark.parametrize("kind", list(KINDS))
DECODERS = pytest.mark.parametrize("kind", ["mean", "last"])


def assert_equal(vector: Vector, wanted: Vector) -> None:
    assert vector.dtype == np.float32
    assert vector.tobytes() == wanted.tobytes()


@EVERY_KIND
def test_emb_2_the_vector_of_a_text_does_not_depend_on_the_texts_beside_it(kind: str) -> None:
    texts = texts_of(80, longest=50)
    for seed in range(3):
        engine = VectorEngine(kind)
        order = random.Random(seed).sample(texts, len(texts))
        tickets = [engine.embed(text) for text in order]
        engine.turn_until_idle()
        for text, ticket in zip(order, tickets, strict=True):
            assert_equal(engine.vector(ticket), expected(text))
        engine.assert_at_rest()
    alone = VectorEngine(kind)
    ticket = alone.embed(texts[0])
    alone.turn_until_idle()
    assert_equal(alone.vector(ticket), expected(texts[0]))
    assert expected(texts[0]).tobytes() != expected(texts[0][:-1]).tobytes()


@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
@EVERY_KIND
def test_emb_2_chunks_decide_no_bit_and_cut_no_text_that_has_to_be_whole(kind: str, chunk: int) -> None:
    engine = VectorEngine(kind, prefill_chunk=chunk)
    text = text_of(60, 3)
    ticket = engine.embed(text)
    engine.turn_until_idle()
    assert_equal(engine.vector(ticket), expected(text))
    assert len(engine.core.forwards) == (-(-60 // chunk) if kind == "last" else 1)


def test_emb_2_a_text_that_is_preempted_after_every_chunk_has_the_same_vector() -> None:
    engine = VectorEngine("last", prefill_chunk=16)
    text = text_of(60, 5)
    sequence = engine.sequence()
    ticket = engine.embed(text, sequence=sequence, bypass_prefix=True)
    for n_chunks in range(1, 4):
        for _ in range(n_chunks):
            engine.turn()
        assert engine.core.preempt(sequence)
    engine.turn_until_idle()
    assert_equal(engine.vector(ticket), expected(text))
    assert engine.finished(ticket).n_preemptions == 3


@pytest.mark.usefixtures("ahead")
@DECODERS
def test_emb_2_vectors_and_generations_do_not_change_each_other(kind: str) -> None:
    """Each of them finds in the cache what the others left there."""
    engine = VectorEngine(kind, n_blocks=24)
    prompts = [prompt_of(20, salt) for salt in range(6)]
    texts = [prompt + text_of(9, i) for i, prompt in enumerate(prompts)]
    for _ in range(2):
        generations, vectors = [], []
        for prompt, text in zip(prompts, texts, strict=True):
            generations.append(engine.generate(prompt, max_outputs=30, sampling=Sampler(temperature=0.8, seed=7)))
            vectors.append(engine.embed(text))
        engine.turn_until_idle()
        for prompt, ticket in zip(prompts, generations, strict=True):
            assert engine.tokens(ticket) == continuation(prompt, 30, Sampler(temperature=0.8, seed=7))
        for text, ticket in zip(texts, vectors, strict=True):
            assert_equal(engine.vector(ticket), expected(text))
    engine.assert_at_rest()


def test_emb_2_only_the_last_row_of_a_causal_model_may_come_after_a_prefix_of_the_cache() -> None:
    text = text_of(40, 8)
    n_cached = {"encoder": 0, "mean": 0, "last": 32}
    n_kept = {"encoder": 0, "mean": 2, "last": 2}
    for kind in KINDS:
        engine = VectorEngine(kind)
        tickets = []
        for _ in range(2):
            tickets.append(engine.embed(text))
            engine.turn_until_idle()
        assert [engine.started(ticket).n_cached_tokens for ticket in tickets] == [0, n_cached[kind]]
        assert engine.core.stats().blocks_cached == n_kept[kind]
        for ticket in tickets:
            assert_equal(engine.vector(ticket), expected(text))


def test_emb_2_a_wrong_row_in_the_cache_would_change_the_vector() -> None:
    """The control of the tests above: the script's vectors depend on every row."""
    engine = VectorEngine("last")
    text = text_of(40, 8)
    sequence = engine.sequence()
    engine.embed(text, sequence=sequence)
    engine.turn()
    block = engine.core.blocks(sequence)[0]
    engine.turn_until_idle()
    engine.core.set_slot(block, 3, (text[3] + 1) % 16)
    ticket = engine.embed(text)
    engine.turn_until_idle()
    assert engine.vector(ticket).tobytes() != expected(text).tobytes()


def test_emb_2_rows_of_a_second_text_have_its_type_and_see_all_of_both() -> None:
    engine = VectorEngine("encoder")
    pair, single = text_of(12, 1), text_of(7, 2)
    tickets = [engine.embed(single), engine.embed(pair, second_text=5), engine.embed(single)]
    engine.turn_until_idle()
    for ticket, wanted in zip(
        tickets, [expected(single), expected(pair, second_text=5), expected(single)], strict=True
    ):
        assert_equal(engine.vector(ticket), wanted)
    (step,) = engine.core.forwards
    assert [rows.types for rows in step] == [[0] * 7, [0] * 5 + [1] * 7, [0] * 7]
    assert [rows.ends for rows in step] == [[7] * 7, [12] * 12, [7] * 7]
    assert [rows.n_logits_rows for rows in step] == [0, 0, 0]
    again = engine.embed(single)
    engine.turn_until_idle()
    assert engine.core.forwards[-1][0].types == []
    assert_equal(engine.vector(again), expected(single))


@EVERY_KIND
def test_emb_2_a_vector_is_cut_and_then_divided_by_its_length(kind: str) -> None:
    engine = VectorEngine(kind)
    text = text_of(20, 4)
    for dimensions in (0, 1, 5, WIDTH):
        for normalized in (True, False):
            ticket = engine.embed(text, dimensions=dimensions, normalized=normalized)
            engine.turn_until_idle()
            vector = engine.vector(ticket)
            assert_equal(vector, expected(text, dimensions, normalized=normalized))
            assert len(vector) == (dimensions or WIDTH)


@EVERY_KIND
def test_emb_2_a_zero_vector_stays_zero_and_one_that_is_not_finite_fails_alone(kind: str) -> None:
    engine = VectorEngine(kind, script={"zero_token": 14, "nan_token": 15})
    good = [token % 14 for token in text_of(20, 6)]
    texts = [good, [*good, 14], [*good, 15], good[:7]]
    tickets = [engine.embed(text) for text in texts]
    engine.turn_until_idle()
    assert_equal(engine.vector(tickets[0]), expected(good))
    assert_equal(engine.vector(tickets[1]), finished([0.0] * WIDTH))
    with pytest.raises(Failed, match="vector of the text that ends at position 21 is not finite") as failed:
        engine.vector(tickets[2])
    assert failed.value.reason == "NON_FINITE"
    assert_equal(engine.vector(tickets[3]), expected(good[:7]))
    engine.assert_at_rest()


def test_emb_2_a_batch_that_fails_is_run_text_by_text() -> None:
    engine = VectorEngine("encoder", script={"failing_token": 15})
    good = [token % 15 for token in text_of(20, 6)]
    tickets = [engine.embed(good, second_text=3), engine.embed([*good, 15]), engine.embed(good)]
    engine.turn_until_idle()
    assert_equal(engine.vector(tickets[0]), expected(good, second_text=3))
    with pytest.raises(Failed, match="BUG"):
        engine.vector(tickets[1])
    assert_equal(engine.vector(tickets[2]), expected(good))


@pytest.mark.usefixtures("ahead")
@EVERY_KIND
def test_emb_5_cancelled_texts_free_all_they_hold_within_a_step(kind: str) -> None:
    engine = VectorEngine(kind, max_waiting=512, prefix_cache=False)
    begun = []
    for text in texts_of(200, longest=60):
        sequence = engine.sequence()
        begun.append((engine.embed(text, sequence=sequence), sequence))
    engine.turn()
    engine.turn()
    for ticket, sequence in begun:
        engine.core.end(ticket, sequence)
    engine.turn()
    engine.assert_at_rest()
    assert engine.core.stats().blocks_free == 64
    assert sum(isinstance(event, _core.StartedEvent) for event in engine.all_events) < 100


def test_emb_5_texts_cancelled_at_random_leave_nothing_behind() -> None:
    rng = random.Random(4)
    for kind in KINDS:
        engine = VectorEngine(kind, max_waiting=512)
        open_texts: list[tuple[int, int, list[int]]] = []
        done: list[tuple[int, list[int]]] = []
        for salt in range(200):
            text, sequence = text_of(rng.randint(2, 60), salt), engine.sequence()
            open_texts.append((engine.embed(text, sequence=sequence), sequence, text))
            if rng.random() < 0.5:
                ticket, sequence, text = open_texts.pop(rng.randrange(len(open_texts)))
                engine.core.end(ticket, sequence)
            if rng.random() < 0.3:
                engine.turn()
        done = [(ticket, text) for ticket, _, text in open_texts]
        engine.turn_until_idle()
        for ticket, text in done:
            assert_equal(engine.vector(ticket), expected(text))
        engine.assert_at_rest()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("last", {"max_outputs": 1}, "max_tokens: 1, expected 0 for a run that returns a vector"),
    ("last", {"siblings": [77]}, "num_sequences: 2"),
    ("last", {"constrained": True}, "constrained: true"),
    ("last", {"sparse_policy": "auto"}, "sparse_prefill: asked for"),
    ("last", {"logits": True}, "logits: true"),
    ("last", {"scores": True}, "scores: true"),
    ("last", {"n_candidates": 2}, "top_logprobs: 2"),
    ("last", {"dimensions": -1}, "dimensions: -1, expected 0 to 8"),
    ("last", {"dimensions": WIDTH + 1}, "dimensions: 9, expected 0 to 8"),
    ("last", {"second_text": 1}, "second_text: 1, expected none: the run has no token types"),
    ("encoder", {"second_text": 4}, "second_text: 4, expected 0 to 3"),
    ("encoder", {"second_text": -2}, "second_text: -2, expected 0 to 3"),
    ("encoder", {"vector": None}, "vector: not asked for"),
    ("encoder", {"vector": None, "max_outputs": 3}, "the model makes no logits"),
    ("encoder", {"max_outputs": 3}, "max_tokens: 3"),
]


@pytest.mark.parametrize(("kind", "given", "message"), REFUSED)
def test_emb_2_a_run_returns_a_vector_or_something_else(kind: str, given: dict[str, Any], message: str) -> None:
    engine = VectorEngine(kind)
    with pytest.raises(_core.InvalidArgument, match=message) as refused:
        engine.embed([1, 2, 3, 4], **given)
    assert refused.value.reason == "FIELD_INVALID"
    engine.assert_at_rest()


def test_emb_2_only_models_that_pool_make_vectors_and_those_without_a_head_nothing_else() -> None:
    engine = VectorEngine("last", script={"vector_width": 0})
    with pytest.raises(_core.InvalidArgument, match="vector: asked for, expected none"):
        engine.embed([1, 2])
    with pytest.raises(_core.InvalidArgument, match="kind: session, expected generation"):
        VectorEngine("encoder").open()
    with pytest.raises(_core.InvalidArgument, match="n_tokens: 0, expected at least 1: the model has no head"):
        VectorEngine("encoder", n_tokens=0)
    decoder = VectorEngine("last")
    session = decoder.open()
    ticket = decoder.run(session, [1, 2], max_outputs=0, vector=_core.VectorRequest())
    decoder.turn_until_idle()
    with pytest.raises(Failed, match="vector: a session makes no vector of its text"):
        decoder.finished(ticket)


def test_emb_2_an_encoder_ignores_what_only_models_that_draw_need() -> None:
    engine = VectorEngine("encoder", suppressed_tokens=[16, 17], drafters=["ngram"])
    ticket = engine.embed([1, 2, 3], max_draft_tokens=4)
    engine.turn_until_idle()
    assert_equal(engine.vector(ticket), expected([1, 2, 3]))


def test_emb_2_the_oracle_tells_texts_types_and_orders_apart() -> None:
    values = {
        tuple(hash_vector(*case)) for case in [([1, 2], 4), ([2, 1], 4), ([1, 2], 4, 1), ([1, 2], 4, 0), ([1], 4)]
    }
    assert len(values) == 5
    assert MEAN_DECODER["whole_texts"]
