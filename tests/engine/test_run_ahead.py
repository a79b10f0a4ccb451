"""Steps that start before the previous one is read: which steps these are, and what happens to rows of ended runs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from imp_service import _core
from support.engine.script_engine import Failed, ScriptEngine
from support.oracles.script_oracle import Sampler, continuation, prompt_of


@pytest.fixture(autouse=True)
def always_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptEngine, "ahead", True)


@pytest.fixture
def engine() -> ScriptEngine:
    return ScriptEngine()


def n_ahead(engine: ScriptEngine) -> int:
    return int(engine.core.stats().n_steps_ahead)


def test_sch_16_every_step_but_the_first_two_is_begun_ahead(engine: ScriptEngine) -> None:
    """The prompt's step and the one after its draw wait for the host; each other step starts one turn ahead."""
    ticket = engine.generate(prompt_of(20), max_outputs=12)
    engine.turn()  # the prompt
    engine.turn()
    assert (len(engine.tokens(ticket)), engine.core.n_forwards) == (2, 3)
    engine.turn()
    assert (len(engine.tokens(ticket)), engine.core.n_forwards) == (3, 4)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(20), 12)
    assert (engine.core.stats().n_steps, n_ahead(engine)) == (12, 10)
    # No token follows the last one that a limit allows, and none comes twice.
    assert engine.evaluated() == [[(0, 20)], *[[(20 + g, 1)] for g in range(11)]]


def test_sch_16_a_device_that_is_waited_for_begins_nothing_ahead() -> None:
    engine = ScriptEngine(script={"ahead": False})
    engine.complete(prompt_of(20), max_outputs=12)
    assert n_ahead(engine) == 0


@pytest.mark.parametrize(
    "given",
    [
        {"sampling": Sampler(repetition_penalty=1.2)},
        {"sampling": Sampler(frequency_penalty=0.4)},
        {"sampling": Sampler(presence_penalty=0.4)},
        {"logits": True},
    ],
    ids=["repetition", "frequency", "presence", "logits"],
)
def test_sch_16_no_step_is_begun_ahead_where_the_host_is_needed_for_it(
    engine: ScriptEngine, given: dict[str, object]
) -> None:
    """Other runs in the same step do not run ahead either; afterwards they continue alone."""
    alone = engine.generate(prompt_of(9, 1), max_outputs=30)
    needing = engine.generate(prompt_of(20), max_outputs=10, **given)
    while len(engine.tokens(needing)) < 10:
        engine.turn()
        assert n_ahead(engine) == 0
    engine.turn_until_idle()
    assert n_ahead(engine) > 10
    assert engine.tokens(alone) == continuation(prompt_of(9, 1), 30)


def test_sch_16_a_mask_holds_its_own_step_back(engine: ScriptEngine) -> None:
    """A constrained run draws when its mask arrives; no step starts ahead of its draw."""
    sequence = engine.sequence()
    engine.generate(prompt_of(20), sequence=sequence, max_outputs=3, constrained=True)
    engine.turn_until_idle()
    assert (engine.core.n_forwards, n_ahead(engine)) == (1, 0)  # all but the last row of the prompt


def test_sch_16_events_of_a_step_are_reported_while_the_next_is_under_way(engine: ScriptEngine) -> None:
    ticket = engine.generate(prompt_of(5), max_outputs=20)
    for n in range(2, 12):
        engine.turn()
        told = [event for event in engine.events[ticket] if isinstance(event, _core.TokenEvent)]
        assert len(told) == n - 1
        assert engine.core.n_forwards == n - (n == 2)


def cancel(engine: ScriptEngine, sequence: int, ticket: int) -> None:
    engine.core.end(ticket, sequence, "cancelled")


def cut(engine: ScriptEngine, sequence: int, ticket: int) -> None:
    engine.core.end(ticket, sequence, "stop", n_outputs=2)


@pytest.mark.parametrize("end", [cancel, cut])
def test_sch_16_hon_11_what_a_run_drew_after_its_end_is_sent_to_nobody(
    engine: ScriptEngine, end: Callable[[ScriptEngine, int, int], None]
) -> None:
    """A session's run ends while one of its steps is in flight; the next run begins in the same turn. The neighbour's
    row in that step counts."""
    session, neighbour = engine.open(), engine.generate(prompt_of(30, 2), max_outputs=25)
    prompt = prompt_of(20)
    first = engine.run(session, prompt, max_outputs=20)
    while len(engine.tokens(first)) < 4:
        engine.turn()
    n_begun = engine.core.n_forwards
    kept = len(engine.tokens(first)) if end is cancel else 2
    end(engine, session, first)
    second = engine.run(session, [], max_outputs=6)
    engine.turn()
    assert engine.core.n_forwards >= n_begun
    assert len(engine.tokens(first)) == max(kept, 4)
    engine.turn_until_idle()
    held = [*prompt, *engine.tokens(first)[:kept]]
    assert engine.tokens(second) == continuation(prompt, kept + 6)[kept:]
    assert engine.core.tokens(session)[: len(held)] == held
    assert engine.tokens(neighbour) == continuation(prompt_of(30, 2), 25)


def test_sch_16_a_generation_that_is_gone_leaves_its_row_and_no_block() -> None:
    """Cancels a generation with a step in flight: another takes its blocks before the device is done."""
    engine = ScriptEngine(n_blocks=4, max_context=64, prefix_cache=False)
    sequence = engine.sequence()
    ticket = engine.generate(prompt_of(40), sequence=sequence, max_outputs=20)
    while len(engine.tokens(ticket)) < 3:
        engine.turn()
    engine.core.end(ticket, sequence, "cancelled")
    other = engine.generate(prompt_of(50, 3), max_outputs=10)
    engine.turn_until_idle()
    assert engine.tokens(other) == continuation(prompt_of(50, 3), 10)
    engine.assert_at_rest()


def test_sch_16_candidates_of_a_row_that_is_gone_are_dropped(engine: ScriptEngine) -> None:
    staying = engine.generate(prompt_of(8, 1), max_outputs=12, n_candidates=3)
    leaving_sequence = engine.sequence()
    leaving = engine.generate(prompt_of(8, 2), sequence=leaving_sequence, max_outputs=12, n_candidates=3)
    while len(engine.tokens(leaving)) < 4:
        engine.turn()
    engine.core.end(leaving, leaving_sequence, "cancelled")
    engine.turn_until_idle()
    assert engine.tokens(staying) == continuation(prompt_of(8, 1), 12)
    told = [event for event in engine.events[staying] if isinstance(event, _core.TokenEvent)]
    assert [event.candidates[0].token for event in told] == engine.tokens(staying)
    assert all(len(event.candidates) == 3 for event in told)


def test_sch_16_a_step_that_fails_ahead_is_begun_again_in_its_turn(engine: ScriptEngine) -> None:
    engine.core.script.failing = [4]
    ticket = engine.generate(prompt_of(20), max_outputs=10)
    engine.turn_until_idle()
    assert engine.tokens(ticket) == continuation(prompt_of(20), 10)
    engine.assert_at_rest()


def test_sch_16_a_step_that_fails_in_its_turn_too_fails_its_run_alone() -> None:
    """The failing token enters a batch only after it is drawn."""
    engine = ScriptEngine("counter", script={"failing_token": 9})
    failing, fine = engine.generate([4], max_outputs=10), engine.generate([10], max_outputs=3)
    engine.turn_until_idle()
    with pytest.raises(Failed) as failed:
        engine.finished(failing)
    assert failed.value.reason == "BUG"
    assert engine.tokens(failing) == [5, 6, 7, 8, 9]
    assert engine.tokens(fine) == [11, 12, 13]


@pytest.mark.parametrize("evicts", [False, True])
def test_sch_16_ses_19_a_session_is_not_refused_for_blocks_that_are_about_to_be_free(*, evicts: bool) -> None:
    """A session needs blocks while a generation draws its last token: it waits for those blocks, and no idle session is
    evicted."""
    engine = ScriptEngine(n_blocks=5, max_context=64, prefix_cache=False, evict_sessions=evicts)
    idle, asking = engine.open(), engine.open()
    engine.step(idle, prompt_of(10), max_outputs=0)
    ending = engine.generate(prompt_of(40), max_outputs=6)
    while len(engine.tokens(ending)) < 5:
        engine.turn()
    asked = engine.run(asking, prompt_of(30, 1), max_outputs=2)
    engine.turn_until_idle()
    assert engine.tokens(asked) == continuation(prompt_of(30, 1), 2)
    assert engine.core.held(idle) == 10
    assert engine.tokens(ending) == continuation(prompt_of(40), 6)


def test_sch_16_blocks_run_short_and_nobody_is_preempted_in_mid_step() -> None:
    """Blocks suffice for two of three: preemption happens between steps, and every token is the oracle's."""
    engine = ScriptEngine(n_blocks=12, max_context=160, script={"block_tokens": 16}, prefix_cache=False)
    prompts = [prompt_of(40, i) for i in range(3)]
    tickets = [engine.generate(prompt, max_outputs=60) for prompt in prompts]
    engine.turn_until_idle()
    for ticket, prompt in zip(tickets, prompts, strict=True):
        assert engine.tokens(ticket) == continuation(prompt, 60)
    assert engine.core.stats().n_preemptions > 0
    assert n_ahead(engine) > 60
    engine.assert_at_rest()


@pytest.mark.few(7)
@pytest.mark.parametrize("seed", range(20))
def test_sch_16_det_1_random_loads_give_the_oracles_tokens(seed: int) -> None:
    """Random arrivals, cancels, pauses and samplers: the reported tokens are a prefix of the oracle's."""
    rng = random.Random(seed)
    engine = ScriptEngine(n_blocks=40, max_context=160, step_tokens=40, prefill_chunk=rng.choice([7, 16, 40]))
    samplers = [Sampler(), Sampler(temperature=0.9, seed=seed), Sampler(repetition_penalty=1.3)]
    running: dict[int, tuple[int, list[int], int, Sampler]] = {}
    cancelled = set()
    for _ in range(150):
        if rng.random() < 0.15:
            sequence, prompt, n = (
                engine.sequence(),
                prompt_of(rng.randrange(2, 70), rng.randrange(9)),
                1 + rng.randrange(40),
            )
            sampler = rng.choice(samplers)
            ticket = engine.generate(prompt, sequence=sequence, max_outputs=n, sampling=sampler)
            running[ticket] = (sequence, prompt, n, sampler)
        if running and rng.random() < 0.05:
            ticket = rng.choice(list(running))
            engine.core.end(ticket, running[ticket][0], "cancelled")
            cancelled.add(ticket)
        if running and rng.random() < 0.1:
            ticket = rng.choice(list(running))
            engine.core.pause(ticket, running[ticket][0], True)
            engine.turn()
            engine.core.pause(ticket, running[ticket][0], False)
        engine.turn()
    engine.turn_until_idle()
    assert n_ahead(engine) > 20
    for ticket, (_, prompt, n, sampler) in running.items():
        expected = continuation(prompt, n, sampler)
        told = engine.tokens(ticket)
        assert told == (expected[: len(told)] if ticket in cancelled else expected)
    engine.assert_at_rest()
