"""The engine's statistics and the timings of requests: steps, cancels, silence, and parts that add up exactly."""

from __future__ import annotations

import os
import random
import select
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import prompt_of

GREEDY = {"sampling": _core.SamplingOptions(temperature=0.0)}
HANGING = 7
MS = 1_000_000


class HungEngine:
    """An engine on its thread whose forward pass hangs at one token until the test releases it."""

    def __init__(self, **options: Any) -> None:
        self._gate, self._opener = os.pipe()
        self._hung, hung_fd = os.pipe()
        self._descriptors = [self._gate, self._opener, self._hung, hung_fd]
        script = _testing.Script(
            "counter", records=False, max_rows=512, hanging_token=HANGING, hung_fd=hung_fd, gate_fd=self._gate
        )
        given = {"n_blocks": 64, "max_context": 256, "max_running": 4, "step_tokens": 64, **options}
        self.core = _testing.ThreadedEngine(script, _core.EngineOptions(**given))

    def collect(self, n_endings: int) -> list[Any]:
        events: list[Any] = []
        while sum(isinstance(e, _core.FinishedEvent | _core.FailedEvent) for e in events) < n_endings:
            select.select([self.core.event_descriptor()], [], [])
            events += self.core.drain_events()
        return events

    def wait_for_silence(self, ns: int) -> int:
        """Waits until the engine has been silent for this long; returns its silence."""
        while (silence := self.core.stats().silence_ns) < ns:
            pass
        return int(silence)

    def wait_for_rest(self) -> None:
        while self.core.stats().silence_ns:
            pass

    def wait_until_hung(self) -> None:
        os.read(self._hung, 1)

    def release(self) -> None:
        os.write(self._opener, b"x")

    def close(self) -> None:
        del self.core
        for descriptor in self._descriptors:
            os.close(descriptor)


@pytest.fixture
def hung() -> Any:
    engine = HungEngine()
    yield engine
    engine.close()


def test_obs_8_silence_grows_while_a_step_hangs_and_is_nothing_at_rest(hung: HungEngine) -> None:
    hung.wait_for_rest()
    hung.core.generate(1, 1, [HANGING], limits=_core.RunLimits(max_outputs=2), **GREEDY)
    first = hung.wait_for_silence(5 * MS)
    assert hung.wait_for_silence(first + 20 * MS) > first
    hung.release()
    hung.collect(1)
    hung.wait_for_rest()


def test_obs_8_an_engine_whose_events_nobody_takes_is_not_stuck() -> None:
    """An engine that waits for its reader is not silent."""
    engine = HungEngine(max_queued_events=20)
    engine.core.generate(1, 1, [HANGING + 1], limits=_core.RunLimits(max_outputs=4), **GREEDY)
    engine.collect(1)
    engine.core.generate(2, 2, [HANGING + 1], limits=_core.RunLimits(max_outputs=100), **GREEDY)
    # The counter reaches the hanging token after about fifteen outputs, so the test releases it in advance.
    for _ in range(20):
        engine.release()
    engine.core.wait_for_steps_locked(20)
    engine.wait_for_rest()
    assert engine.core.stats().running == 1
    engine.collect(1)
    engine.close()


def test_obs_9_every_cancel_that_ends_a_run_is_timed() -> None:
    engine = ScriptEngine("counter")
    tickets = [engine.generate([1, 2, 3 + i], max_outputs=50, sequence=100 + i) for i in range(4)]
    for _ in range(3):
        engine.turn()
    live = engine.core.stats().blocks_live
    engine.core.now_ns += 3 * MS
    for i in range(3):
        engine.core.end(tickets[i], 100 + i, "cancelled")
    engine.core.end(tickets[3], 103, "aborted")
    engine.core.end(tickets[0], 100, "cancelled")
    engine.turn_until_idle()
    cancels = engine.core.stats().cancels
    assert sum(cancels.counts) == 3
    assert live == 4
    engine.assert_at_rest()


def test_obs_9_a_cancel_during_a_step_waits_for_its_end(hung: HungEngine) -> None:
    hung.core.generate(1, 1, [HANGING], limits=_core.RunLimits(max_outputs=100), **GREEDY)
    hung.wait_until_hung()
    hung.core.end(1, 1, "cancelled")
    before = hung.core.stats().silence_ns
    hung.wait_for_silence(before + 9 * MS)
    hung.release()
    hung.collect(1)
    cancels = hung.core.stats().cancels
    assert sum(cancels.counts) == 1
    assert 8 * MS < cancels.sum_ns < 30_000 * MS
    # 8 ms and more: the buckets from 2^13 microseconds on.
    assert sum(cancels.counts[13:]) == 1


def test_steps_are_counted_by_their_duration() -> None:
    engine = ScriptEngine("counter")
    engine.complete([1, 2, 3], max_outputs=9)
    stats = engine.core.stats()
    assert sum(stats.steps.counts) == stats.n_steps == 9
    assert stats.steps.sum_ns == stats.step_ns


def test_obs_3_the_parts_of_a_request_add_up_to_the_time_from_its_coming_to_its_end() -> None:
    """Runs requests of all sizes on a busy engine, some of them paused; each turn takes a different time."""
    rng = random.Random(3)
    engine = ScriptEngine(max_running=4, prefill_chunk=8, step_tokens=16, n_blocks=40, max_context=128)
    sequences: dict[int, int] = {}
    came: dict[int, int] = {}
    ended: dict[int, int] = {}
    paused: dict[int, int] = {}  # ticket -> since when
    waited: dict[int, int] = {}  # ticket -> how long it was paused, in all
    while len(ended) < 120:
        if len(came) < 120 and len(came) - len(ended) < 12:
            sequence = engine.sequence()
            prompt = prompt_of(rng.randrange(1, 60), len(came))
            ticket = engine.generate(prompt, sequence=sequence, max_outputs=rng.randrange(1, 30))
            sequences[ticket], came[ticket], waited[ticket] = sequence, engine.core.now_ns, 0
        for ticket in [ticket for ticket in came if ticket not in ended and engine.tokens(ticket)]:
            if ticket in paused and rng.random() < 0.3:
                engine.core.pause(ticket, sequences[ticket], False)
                waited[ticket] += engine.core.now_ns - paused.pop(ticket)
            elif ticket not in paused and rng.random() < 0.05:
                engine.core.pause(ticket, sequences[ticket], True)
                paused[ticket] = engine.core.now_ns
        engine.turn()
        for event in engine.all_events:
            if isinstance(event, _core.FinishedEvent):
                ended[event.ticket] = engine.core.now_ns
                waited[event.ticket] += ended[event.ticket] - paused.pop(event.ticket, ended[event.ticket])
        engine.all_events.clear()
        engine.core.now_ns += rng.randrange(1, 1000)
    for ticket, at in came.items():
        times = engine.finished(ticket).timings
        parts = (times.queue_ns, times.prefill_ns, times.decode_ns)
        assert min(parts) >= 0
        assert sum(parts) == ended[ticket] - at
        # Counted separately, because it is part of the others.
        assert times.blocked_ns == waited[ticket] <= sum(parts)
    assert sum(time > 0 for time in waited.values()) > 20
    engine.assert_at_rest()
