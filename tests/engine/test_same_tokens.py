"""Output is a function of prompt, options and seed: company, chunks, cache, preemption, threads change no bit."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from support.forward_runs import load
from support.forward_runs import prompt as random_prompt
from support.model_engine import ModelEngine
from support.script_engine import ScriptEngine
from support.script_oracle import Sampler, continuation, prompt_of
from support.tiny_models import tiny

pytestmark = pytest.mark.usefixtures("ahead")
N_RUNS = 10_000 if os.environ.get("IMP_RELEASE") else 60
SAMPLERS = [
    Sampler(),
    Sampler(temperature=0.8, seed=7),
    Sampler(temperature=1.2, seed=5, repetition_penalty=1.3, presence_penalty=0.5),
    Sampler(temperature=0.6, seed=2, frequency_penalty=0.7, logit_bias={3: -4.0, 9: 1.5}),
]


def requests(n: int) -> list[tuple[list[int], int, Sampler]]:
    return [(prompt_of(2 + 9 * i % 61, i % 5), 5 + 7 * i % 30, SAMPLERS[i % 4]) for i in range(n)]


def test_sch_1_det_1_output_does_not_depend_on_its_company() -> None:
    """Mixed requests with different arrivals: each is the oracle's."""
    engine = ScriptEngine(prefill_chunk=16, step_tokens=40)
    tickets = []
    for prompt, n, sampler in requests(8):
        tickets.append(engine.generate(prompt, max_outputs=n, sampling=sampler))
        engine.turn()
        engine.turn()
    engine.turn_until_idle()
    for ticket, (prompt, n, sampler) in zip(tickets, requests(8), strict=True):
        assert engine.tokens(ticket) == continuation(prompt, n, sampler)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64, 512])
def test_det_2_chunks_change_no_token(chunk: int) -> None:
    engine = ScriptEngine(prefill_chunk=chunk, step_tokens=512)
    prompt = prompt_of(150)
    assert engine.complete(prompt, max_outputs=8, sampling=SAMPLERS[2]) == continuation(prompt, 8, SAMPLERS[2])
    assert max(n for step in engine.evaluated() for _, n in step) == min(chunk, 150)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_det_5_preemption_after_every_token_changes_none(prefix_cache: bool) -> None:
    """A run of 40 tokens loses its blocks after each; recomputed or found again, it goes on with the same draws."""
    engine = ScriptEngine(prefix_cache=prefix_cache)
    for sampler in SAMPLERS:
        sequence, prompt = engine.sequence(), prompt_of(21)
        ticket = engine.generate(prompt, sequence=sequence, max_outputs=40, sampling=sampler)
        n_outputs = 0
        while engine.turn():
            if n_outputs < len(engine.tokens(ticket)) < 40:
                n_outputs += 1
                assert engine.core.preempt(sequence)
        assert engine.tokens(ticket) == continuation(prompt, 40, sampler)
        assert engine.finished(ticket).n_preemptions == 39
        assert [e.output for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)] == list(range(40))
    engine.assert_at_rest()


def test_det_5_hon_11_negative_control_a_cache_that_lies_is_seen() -> None:
    """One slot of a held block is changed: the tokens differ, so the tests above could have failed."""
    engine = ScriptEngine()
    sequence, prompt = engine.sequence(), prompt_of(21)
    ticket = engine.generate(prompt, sequence=sequence, max_outputs=20)
    engine.turn()
    engine.core.set_slot(engine.core.blocks(sequence)[0], 3, (prompt[3] + 1) % 16)
    engine.turn_until_idle()
    assert engine.tokens(ticket) != continuation(prompt, 20)
    assert engine.tokens(ticket)[:1] == continuation(prompt, 1)


def test_det_9_d05_one_completion_per_prompt_sampler_and_seed() -> None:
    """Random batch size, arrival, chunk, cache, pool, preemption: 20 prompts, one completion each."""
    rng = random.Random(77)
    expected = {i: continuation(p, n, s) for i, (p, n, s) in enumerate(requests(20))}
    n_runs = 0
    while n_runs < N_RUNS:
        engine = ScriptEngine(
            prefill_chunk=rng.choice([1, 7, 16, 64]), step_tokens=rng.choice([16, 40, 100]), max_context=128,
            prefix_cache=rng.random() < 0.7, n_blocks=rng.choice([33, 60, 200]), max_running=rng.choice([1, 3, 16]),
            script={"block_tokens": 4, "records": False},
        )  # fmt: skip
        live: dict[int, tuple[int, int]] = {}
        for _ in range(rng.randrange(5, 15)):
            i = rng.randrange(20)
            prompt, n, sampler = requests(20)[i]
            sequence = engine.sequence()
            live[engine.generate(prompt, sequence=sequence, max_outputs=n, sampling=sampler)] = i, sequence
            for _ in range(rng.randrange(6)):
                engine.turn()
                ticket, (_, victim) = rng.choice(sorted(live.items()))
                if rng.random() < 0.2 and not any(isinstance(e, _core.FinishedEvent) for e in engine.events[ticket]):
                    engine.core.preempt(victim)
        engine.turn_until_idle()
        for ticket, (i, _) in live.items():
            assert engine.tokens(ticket) == expected[i]
            n_runs += 1
        engine.assert_at_rest()


SWITCHES: dict[str, tuple[Any, Any]] = {
    "prefix_cache": (True, False), "prefill_chunk": (64, 5), "max_running": (16, 2), "logprobs": (False, True),
    "n_candidates": (0, 4), "scores": (False, True), "logits": (False, True), "bypass_prefix": (False, True),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(SWITCHES, 2)))
def test_det_10_every_pair_of_switches_is_neutral(first: str, second: str) -> None:
    chosen = {name: SWITCHES[name][1] for name in (first, second)}
    options = {
        name: value for name, value in chosen.items() if name in {"prefix_cache", "prefill_chunk", "max_running"}
    }
    asked = {name: value for name, value in chosen.items() if name not in options}
    engine = ScriptEngine(**options)
    engine.complete(requests(4)[1][0], max_outputs=1)
    tickets = [engine.generate(p, max_outputs=n, sampling=s, **asked) for p, n, s in requests(4)]
    engine.turn_until_idle()
    for ticket, (prompt, n, sampler) in zip(tickets, requests(4), strict=True):
        assert engine.tokens(ticket) == continuation(prompt, n, sampler)


# The same on real models: bits of logits, on the CPU backend.


@pytest.fixture(scope="module", params=["llama", "qwen3", "gemma2"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def models(family: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Models of the family by number of threads."""
    folder: Path = tmp_path_factory.mktemp(family)
    source = tiny(family).write(folder / "m.gguf")
    loaded: dict[int, Any] = {}
    yield lambda threads: loaded.setdefault(threads, load(source, folder, threads=threads))


def options(sampler: Sampler) -> _core.SamplingOptions:
    return _core.SamplingOptions(**sampler.options())


@pytest.fixture(scope="module")
def alone(models: Any) -> list[tuple[list[int], int, Sampler, list[bytes], list[int]]]:
    """Requests, each with its logits and outputs when it runs alone, whole, and without a cache."""
    engine = ModelEngine(models(1), prefix_cache=False)
    known = []
    for i in range(6):
        prompt, n, sampler = random_prompt(5 + 23 * i, 51, 1 + i % 2), 6 + i, SAMPLERS[i % 4]
        ticket = engine.generate(prompt, n, sampling=options(sampler), logits=True)
        known.append((prompt, n, sampler, engine.rows(ticket), engine.outputs(ticket)))
    assert len({tuple(outputs) for *_, outputs in known}) == 6
    return known


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_det_1_det_2_det_3_det_4_batches_chunks_cache_and_threads_change_no_bit(
    models: Any, alone: Any, threads: int, chunk: int
) -> None:
    engine = ModelEngine(models(threads), prefill_chunk=chunk)
    for _ in range(2):  # the second time from the cache
        tickets = [engine.generate(p, n, sampling=options(s), logits=True) for p, n, s, *_ in alone]
        for ticket, (*_, rows, outputs) in zip(tickets, alone, strict=True):
            assert engine.outputs(ticket) == outputs
            assert engine.rows(ticket) == rows
    assert engine.core.stats().n_cached_tokens > 0


def test_det_5_sch_4_preemption_under_pressure_changes_no_bit(models: Any, alone: Any) -> None:
    """A pool that the requests outgrow: some are preempted, all are as alone."""
    engine = ModelEngine(models(2), n_blocks=14, max_context=200, prefix_cache=False)
    tickets = [engine.generate(p[:20], 60, sampling=options(s), logits=True) for p, _, s, *_ in alone]
    got = [(engine.outputs(ticket), engine.rows(ticket)) for ticket in tickets]
    assert engine.core.stats().n_preemptions > 0
    large = ModelEngine(models(1))
    for (outputs, rows), (p, _, s, *_) in zip(got, alone, strict=True):
        ticket = large.generate(p[:20], 60, sampling=options(s), logits=True)
        assert (large.outputs(ticket), large.rows(ticket)) == (outputs, rows)


def test_gen_4_gen_23_ses_9_steps_and_generations_agree_bit_for_bit(models: Any, alone: Any) -> None:
    engine = ModelEngine(models(1))
    for prompt, n, sampler, rows, outputs in alone:
        session = engine.open(sampling=options(sampler))
        tickets = [engine.run(session, prompt[: len(prompt) // 2], 0)]
        engine.wait(*tickets)
        got_rows, got = [], []
        for i in range(n):
            ticket = engine.run(
                session, prompt[len(prompt) // 2 :] if i == 0 else [], logits=True, base=len(prompt) if i == 0 else None
            )
            got += engine.outputs(ticket)
            got_rows += engine.rows(ticket)
        assert (got, got_rows) == (outputs, rows)


def test_det_8_mod_21_engines_come_and_go_on_one_model(models: Any, alone: Any) -> None:
    prompt, n, sampler, rows, outputs = alone[2]
    for _ in range(5):
        engine = ModelEngine(models(1))
        ticket = engine.generate(prompt, n, sampling=options(sampler), logits=True)
        assert (engine.outputs(ticket), engine.rows(ticket)) == (outputs, rows)
        del engine


def test_det_8_det_18_two_engines_do_not_influence_each_other(alone: Any, family: str, tmp_path: Path) -> None:
    """Two models of one file, another rope in the second, run at the same time."""
    source = tiny(family).write(tmp_path / "m.gguf")
    engines = [ModelEngine(load(source, tmp_path)), ModelEngine(load(source, tmp_path, rope_theta=500.0))]
    solo = ModelEngine(load(source, tmp_path, rope_theta=500.0))
    tickets = [[e.generate(p, n, sampling=options(s), logits=True) for p, n, s, *_ in alone] for e in engines]
    for i, (p, n, s, rows, outputs) in enumerate(alone):
        assert (engines[0].outputs(tickets[0][i]), engines[0].rows(tickets[0][i])) == (outputs, rows)
        expected = solo.generate(p, n, sampling=options(s), logits=True)
        assert engines[1].rows(tickets[1][i]) == solo.rows(expected)
        assert engines[1].rows(tickets[1][i]) != rows
