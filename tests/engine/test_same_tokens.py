"""Output is a function of prompt, options and seed: other requests, chunks, cache and preemption change no token."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from imp_service import _core
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of
from support.run.release_run import repetitions

pytestmark = pytest.mark.usefixtures("ahead")
N_RUNS = repetitions(10_000, 60)
SAMPLERS = [
    Sampler(),
    Sampler(temperature=0.8, seed=7),
    Sampler(temperature=1.2, seed=5, repetition_penalty=1.3, presence_penalty=0.5),
    Sampler(temperature=0.6, seed=2, frequency_penalty=0.7, logit_bias={3: -4.0, 9: 1.5}),
]


def requests(n: int) -> list[tuple[list[int], int, Sampler]]:
    return [(prompt_of(2 + 9 * i % 61, i % 5), 5 + 7 * i % 30, SAMPLERS[i % 4]) for i in range(n)]


def test_sch_1_det_1_output_does_not_depend_on_its_company() -> None:
    """Mixed requests arrive at different times; each gives the oracle's tokens."""
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
    assert max(n for step in engine.evaluated() for first, n in step if first < 150) == min(chunk, 150)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_det_5_preemption_after_every_token_changes_none(prefix_cache: bool) -> None:
    """A run of 40 tokens loses its blocks after each; recomputed or found in the cache, it draws the same tokens."""
    engine = ScriptEngine(prefix_cache=prefix_cache)
    for sampler in SAMPLERS:
        sequence, prompt = engine.sequence(), prompt_of(21)
        ticket = engine.generate(prompt, sequence=sequence, max_outputs=40, sampling=sampler)
        n_outputs = n_preemptions = 0
        while engine.turn():
            if n_outputs < len(engine.tokens(ticket)) < 40:
                n_outputs = len(engine.tokens(ticket))
                n_preemptions += 1
                assert engine.core.preempt(sequence)
        assert engine.tokens(ticket) == continuation(prompt, 40, sampler)
        assert engine.finished(ticket).n_preemptions == n_preemptions
        assert n_preemptions == 39 or engine.drafts > 0
        assert [e.output for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)] == list(range(40))
    engine.assert_at_rest()


def test_det_5_hon_11_negative_control_a_cache_that_lies_is_seen() -> None:
    """Changes one slot of a held block: the tokens differ, which shows that the tests above can fail."""
    engine = ScriptEngine()
    sequence, prompt = engine.sequence(), prompt_of(21)
    ticket = engine.generate(prompt, sequence=sequence, max_outputs=20)
    engine.turn()
    engine.core.set_slot(engine.core.blocks(sequence)[0], 3, (prompt[3] + 1) % 16)
    engine.turn_until_idle()
    assert engine.tokens(ticket) != continuation(prompt, 20)
    assert engine.tokens(ticket)[:1] == continuation(prompt, 1)


def test_det_9_d05_one_completion_per_prompt_sampler_and_seed() -> None:
    """Varies batch size, arrival, chunk, cache, pool and preemption: 20 prompts have one completion each."""
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


@pytest.mark.sweep
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
