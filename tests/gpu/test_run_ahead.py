"""Steps that start ahead on a GPU, emulated or real: what interrupts them, and what remains of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core, _testing
from support.engine.script_engine import Sampler, TurnedEngine
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import load, prompt
from support.models.tiny_models import tiny

pytestmark = pytest.mark.parametrize("device", GPU_KINDS)

VOCABULARY = 96
SAMPLERS = [Sampler(), Sampler(temperature=0.9, seed=5), Sampler(temperature=0.7, seed=8)]
LATE: dict[str, dict[str, Any]] = {
    "plain": {"max_outputs": 6},
    "logits": {"max_outputs": 6, "logits": True},
    "scores": {"max_outputs": 6, "scores": True},
    "candidates of the prompt": {"max_outputs": 0, "n_candidates": 4},
    "penalized": {"max_outputs": 6, "sampling": Sampler(repetition_penalty=1.2)},
    "candidates": {"max_outputs": 6, "n_candidates": 20},
}


def model_on(device: str, folder: Path, **changes: Any) -> Any:
    """Loads a model in deterministic mode, so that tokens do not depend on other sequences."""
    source = tiny("qwen3", vocab_size=VOCABULARY, n_layers=2)
    return load(source, folder, device=device, deterministic=True, **changes)


def engine_over(model: Any, **options: Any) -> TurnedEngine:
    given = {"n_blocks": 40, "max_context": 96, "max_running": 16, "step_tokens": 64, "prefill_chunk": 64, **options}
    return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given)))


def streams(engine: TurnedEngine, n_outputs: int) -> list[int]:
    return [
        engine.generate(prompt(7 + 11 * i, VOCABULARY, seed=i), max_outputs=n_outputs, sampling=sampler)
        for i, sampler in enumerate(SAMPLERS)
    ]


def held_back(model: Any, n_outputs: int) -> list[list[int]]:
    """Returns what the streams draw without steps ahead, which another run prevents: it needs the host's penalties."""
    engine = engine_over(model)
    engine.generate(prompt(5, VOCABULARY, seed=9), max_outputs=n_outputs + 5, sampling=Sampler(presence_penalty=0.5))
    tickets = streams(engine, n_outputs)
    engine.turn_until_idle()
    assert engine.core.stats().n_steps_ahead == 0
    return [engine.tokens(ticket) for ticket in tickets]


@pytest.mark.long
def test_sch_16_an_engine_keeps_one_step_ahead_and_draws_the_same(device: str, tmp_path: Path) -> None:
    model = model_on(device, tmp_path)
    engine = engine_over(model)
    tickets = streams(engine, 12)
    engine.turn_until_idle()
    outputs = [engine.tokens(ticket) for ticket in tickets]
    assert outputs == held_back(model, 12)
    assert len({tuple(tokens) for tokens in outputs}) == len(outputs) and len(set(outputs[0])) > 1
    assert engine.core.stats().n_steps_ahead >= 9


@pytest.mark.long
@pytest.mark.parametrize("late", LATE)
def test_sch_16_who_comes_while_a_step_is_under_way_gets_its_own(device: str, tmp_path: Path, late: str) -> None:
    """New runs need the host for their draws: none gets another's tokens, and each gets everything it requested."""
    model = model_on(device, tmp_path)
    engine, alone = engine_over(model), engine_over(model)
    tickets = streams(engine, 12)
    while len(engine.tokens(tickets[0])) < 5:
        engine.turn()
    assert engine.core.stats().n_steps_ahead > 0
    arrivals = [engine.generate(prompt(9 + i, VOCABULARY, seed=20 + i), **LATE[late]) for i in range(2)]
    engine.turn_until_idle()
    assert [engine.tokens(ticket) for ticket in tickets] == held_back(model, 12)
    for i, ticket in enumerate(arrivals):
        expected = alone.generate(prompt(9 + i, VOCABULARY, seed=20 + i), **LATE[late])
        alone.turn_until_idle()
        assert told(engine, ticket) == told(alone, expected)


def told(engine: TurnedEngine, ticket: int) -> list[Any]:
    """Returns tokens, and the bits of the values reported with them."""
    assert engine.finished(ticket).reason == "max_tokens"
    start = engine.started(ticket)
    found: list[Any] = [
        np.asarray(start.scores.logprobs, np.float32).tobytes(),
        [(candidate.token, candidate.logprob) for candidate in start.candidates],
    ]
    for event in engine.events[ticket]:
        if isinstance(event, _core.TokenEvent):
            logits = b"" if event.logits is None else np.asarray(event.logits).tobytes()
            found.append((event.token, logits, [(c.token, c.logprob) for c in event.candidates]))
    return found


@pytest.mark.long
def test_sch_16_obs_4_a_profile_begun_in_mid_run_changes_no_token(device: str, tmp_path: Path) -> None:
    """The profile has only whole steps, without the one that was in flight."""
    model = model_on(device, tmp_path)
    engine = engine_over(model)
    tickets = streams(engine, 16)
    while len(engine.tokens(tickets[0])) < 5:
        engine.turn()
    ahead = engine.core.stats().n_steps_ahead
    profile = engine.command("profile", 4)
    engine.turn_until_idle()
    assert [engine.tokens(ticket) for ticket in tickets] == held_back(model, 16)
    (event,) = engine.events[profile]
    assert len(event.steps) == 4
    for step in event.steps:
        assert step.whole.begin_ns <= step.forward.begin_ns <= step.forward.end_ns <= step.whole.end_ns
    assert engine.core.stats().n_steps_ahead > ahead  # again, after its end


@pytest.mark.long
def test_sch_16_an_engine_that_goes_leaves_nothing_to_the_next(device: str, tmp_path: Path) -> None:
    """The first engine is destroyed with a step in flight; the second, over the same model, reports its own draws."""
    model = model_on(device, tmp_path)
    expected = held_back(model, 8)
    for n_turns in (6, 7):
        engine = engine_over(model)
        streams(engine, 20)
        for _ in range(n_turns):
            engine.turn()
        assert engine.core.stats().n_steps_ahead > 0
        del engine
        after = engine_over(model)
        tickets = streams(after, 8)
        after.turn_until_idle()
        assert [after.tokens(ticket) for ticket in tickets] == expected


@pytest.mark.sweep(quick=lambda n_streams, **_: n_streams == 5)
@pytest.mark.parametrize("n_streams", [3, 5])
def test_grf_2_rows_of_nobody_are_no_more_than_there_is_room_for(device: str, tmp_path: Path, n_streams: int) -> None:
    """A batch of 5 would be padded to 8, but there is memory for 5 rows of logits."""
    model = model_on(device, tmp_path, max_rows=16, max_logits_rows=5)
    options = {"max_running": 5, "step_tokens": 16, "prefill_chunk": 16}
    engine = engine_over(model, **options)
    prompts = [prompt(3, VOCABULARY, seed=i) for i in range(n_streams)]
    tickets = [engine.generate(tokens, max_outputs=8) for tokens in prompts]
    engine.turn_until_idle()
    assert engine.core.stats().n_steps_ahead > 0  # the runs of a failed batch start one by one, none ahead
    for tokens, ticket in zip(prompts, tickets, strict=True):
        assert engine.tokens(ticket) == engine_over(model, **options).complete(tokens, max_outputs=8)
