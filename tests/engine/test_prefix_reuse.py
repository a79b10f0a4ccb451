"""The prefix cache in the engine: hits change the work, but no token."""

from __future__ import annotations

import itertools
import random

import pytest

from imp_service import _core
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of

pytestmark = pytest.mark.usefixtures("ahead")
SEEDED = Sampler(temperature=0.9, seed=21)
LONG = prompt_of(70)
VARIANTS = [LONG, LONG[:33], [*LONG, *prompt_of(20, 4)], [*LONG[:40], *prompt_of(25, 5)]]


def cached(engine: ScriptEngine, prompt: list[int], **given: object) -> int:
    ticket = engine.generate(prompt, max_outputs=1, **given)
    engine.turn_until_idle()
    engine.finished(ticket)
    return int(engine.started(ticket).n_cached_tokens)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_pfx_1_det_3_hit_partial_hit_and_miss_give_the_same_tokens(order: tuple[int, ...]) -> None:
    """Runs equal, shorter and longer prompts and prompts with a common prefix in every order, and compares logits."""
    engine = ScriptEngine()
    for i in order:
        prompt = VARIANTS[i]
        ticket = engine.generate(prompt, max_outputs=6, sampling=SEEDED, logits=True)
        bypassing = engine.generate(prompt, max_outputs=6, sampling=SEEDED, logits=True, bypass_prefix=True)
        engine.turn_until_idle()
        assert engine.tokens(ticket) == engine.tokens(bypassing) == continuation(prompt, 6, SEEDED)
        rows = [
            [e.logits.tobytes() for e in engine.events[t] if isinstance(e, _core.TokenEvent)]
            for t in (ticket, bypassing)
        ]
        assert rows[0] == rows[1]
    assert engine.core.stats().n_cached_tokens > 0
    engine.assert_at_rest()


@pytest.mark.parametrize(("n", "expected"), [(1, 0), (15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (49, 48)])
def test_pfx_2_a_repeat_finds_all_full_blocks_but_the_last_token(n: int, expected: int) -> None:
    engine = ScriptEngine()
    prompt = prompt_of(n, 3)
    assert [cached(engine, prompt), cached(engine, prompt)] == [0, expected]
    assert engine.evaluated()[-1][0] == (expected, n - expected)


def test_pfx_2_generated_blocks_are_found_too() -> None:
    """Continues a conversation: the prompt is the old prompt, its outputs, and a new turn."""
    engine = ScriptEngine()
    prompt = prompt_of(20)
    outputs = engine.complete(prompt, max_outputs=30)
    assert cached(engine, [*prompt, *outputs, 1, 2, 3]) == 48


def test_pfx_2_a_session_opened_with_a_cached_prefix_takes_it() -> None:
    engine = ScriptEngine()
    engine.complete(prompt_of(40), max_outputs=1)
    session = engine.open()
    ticket = engine.run(session, prompt_of(40))
    engine.turn_until_idle()
    assert (engine.started(ticket).n_tokens, engine.started(ticket).n_cached_tokens) == (40, 32)
    assert engine.tokens(ticket) == continuation(prompt_of(40), 1)


@pytest.mark.parametrize("part", ["cache_scope", "engine", "nothing"])
def test_pfx_5_another_scope_finds_nothing(part: str) -> None:
    """The scope includes tenant and salt. Model and cache type are fixed per engine, and each engine has its cache."""
    engine = ScriptEngine()
    prompt = prompt_of(40)
    cached(engine, prompt, cache_scope="tenant a\0salt")
    found_in = ScriptEngine() if part == "engine" else engine
    scope = "tenant a\0other" if part == "cache_scope" else "tenant a\0salt"
    assert cached(found_in, prompt, cache_scope=scope) == (32 if part == "nothing" else 0)
    with pytest.raises(_core.InvalidArgument, match="cache_scope: 257 bytes"):
        engine.generate(prompt, cache_scope="x" * 257)


def test_pfx_6_bypassing_computes_everything_and_stores_it() -> None:
    engine = ScriptEngine()
    prompt = prompt_of(40)
    assert [cached(engine, prompt, bypass_prefix=True), cached(engine, prompt)] == [0, 32]
    n_forwards = engine.core.n_forwards
    assert cached(engine, prompt, bypass_prefix=True) == 0
    assert sum(n for step in engine.evaluated()[n_forwards:] for _, n in step) == 40


def test_pfx_8_flushing_in_mid_stream_harms_nobody() -> None:
    engine = ScriptEngine()
    engine.complete(prompt_of(64, 8), max_outputs=1)
    ticket = engine.generate(prompt_of(40), max_outputs=20)
    for _ in range(6):
        engine.turn()
    before = engine.core.stats().blocks_cached
    flush = engine.command("flush")
    engine.turn()
    assert (engine.done(flush).freed_blocks, engine.core.stats().blocks_cached, before) == (before, 0, 4)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(40), 20)


def test_kv_7_live_cached_and_free_are_distinguished() -> None:
    engine = ScriptEngine(n_blocks=16)
    sequence = engine.sequence()
    ticket = engine.generate(prompt_of(40), sequence=sequence, max_outputs=50)
    for _ in range(4):
        engine.turn()
    stats = engine.core.stats()
    assert (stats.blocks_live, stats.blocks_cached, stats.blocks_free) == (3, 0, 13)
    engine.core.end(ticket, sequence)
    engine.turn()
    stats = engine.core.stats()
    assert (stats.blocks_live, stats.blocks_cached, stats.blocks_free) == (0, 2, 14)


def test_pfx_7_cached_blocks_give_way_to_live_ones() -> None:
    """Serves far more prompts than there are blocks; the cache keeps only what fits."""
    rng = random.Random(5)
    engine = ScriptEngine(n_blocks=12, max_context=96)
    for _ in range(40):
        prompt = prompt_of(rng.randrange(1, 80), rng.randrange(4))
        assert engine.complete(prompt, max_outputs=9, sampling=SEEDED) == continuation(prompt, 9, SEEDED)
        engine.assert_at_rest()


def test_d03_smp_17_a_broken_block_fails_who_holds_it_and_is_not_found_again() -> None:
    """Two sequences share a prefix whose block breaks; a third does not share it."""
    engine = ScriptEngine()
    prompt = prompt_of(33)
    bystander = engine.generate(prompt_of(20, 7), max_outputs=40, sampling=SEEDED)
    holders = []
    for salt in (1, 2):
        sequence = engine.sequence()
        holders.append(engine.generate([*prompt, *prompt_of(5, salt)], sequence=sequence, max_outputs=40))
        for _ in range(3):
            engine.turn()
        blocks = engine.core.blocks(sequence)
    engine.core.poison(blocks[1])
    engine.turn_until_idle()
    for ticket in holders:
        with pytest.raises(Failed) as failed:
            engine.finished(ticket)
        assert failed.value.reason == "NON_FINITE"
        assert set(failed.value.details) == {"position"}
    assert engine.tokens(bystander) == continuation(prompt_of(20, 7), 40, SEEDED)
    assert cached(engine, prompt) == 0
    assert engine.complete(prompt, max_outputs=5) == continuation(prompt, 5)


@pytest.mark.parametrize("n_bad", [1, 4])
def test_smp_17_sch_2_d01_a_row_that_is_not_finite_ends_its_own_request(n_bad: int) -> None:
    """The other requests in a batch of four are as in a clean run."""
    prompts = [[i, 4, 7, 15 if i < n_bad else 8, 1] for i in range(4)]
    no_15 = Sampler(temperature=0.8, seed=4, logit_bias={15: -100.0})
    engine = ScriptEngine(script={"nan_token": 15})
    tickets = [engine.generate(prompt, max_outputs=12, sampling=no_15) for prompt in prompts]
    engine.turn_until_idle()
    for i, (ticket, prompt) in enumerate(zip(tickets, prompts, strict=True)):
        if i < n_bad:
            with pytest.raises(Failed) as failed:
                engine.finished(ticket)
            assert (failed.value.reason, failed.value.details) == ("NON_FINITE", {"position": "5"})
            assert engine.tokens(ticket) == []
        else:
            assert engine.tokens(ticket) == continuation(prompt, 12, no_15)
    engine.assert_at_rest()


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_n04_freed_blocks_are_not_read_before_they_are_written(prefix_cache: bool) -> None:
    """One tenant fills every block, which is then freed and poisoned; another tenant's sequences see none of it."""
    engine = ScriptEngine(n_blocks=24, max_context=128, prefix_cache=prefix_cache)
    others = [engine.generate(prompt_of(100, i), max_outputs=20, cache_scope="1:a") for i in range(6)]
    engine.turn_until_idle()
    assert [len(engine.tokens(ticket)) for ticket in others] == [20] * 6
    engine.command("flush")
    engine.turn_until_idle()
    assert engine.core.stats().blocks_free == 24
    for block in range(24):
        engine.core.poison(block)
    mine = [
        engine.generate(prompt_of(17 * i + 1, i), max_outputs=30, sampling=SEEDED, cache_scope="1:b", logits=True)
        for i in range(6)
    ]
    engine.turn_until_idle()
    for i, ticket in enumerate(mine):
        assert engine.tokens(ticket) == continuation(prompt_of(17 * i + 1, i), 30, SEEDED)
    engine.assert_at_rest()
