"""Timings on a clock that only the test advances: the parts of a request add up exactly."""

from __future__ import annotations

import random

from imp_service import _core
from support.script_engine import ScriptEngine
from support.script_oracle import prompt_of


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
