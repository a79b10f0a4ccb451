"""Runs generations on a real engine over a real model and collects its events."""

from __future__ import annotations

import itertools
import select
from collections.abc import Sequence
from typing import Any

from imp_service import _core
from support.run.patience import HANGS_AFTER


class ModelEngine:
    """An engine with its thread; the test waits for its events."""

    def __init__(self, model: _core.Model, *, placeholder: int | None = None, **options: Any) -> None:
        given: dict[str, Any] = {
            "n_blocks": model.n_blocks,
            "n_state_slots": model.n_state_slots,
            "max_context": model.max_context,
            "max_running": 16,
            "step_tokens": 64,
            "prefill_chunk": 64,
            **options,
        }
        self.core = _core.Engine(model, _core.EngineOptions(**given), placeholder)
        self._ids = itertools.count(1)
        self._tickets = itertools.count(1)
        self.events: dict[int, list[Any]] = {}

    def generate(self, tokens: Sequence[int], n: int, **given: Any) -> int:
        ticket = next(self._tickets)
        self.events[ticket] = []
        returns = _core.RunReturns(logits=given.pop("logits", False))
        self.core.generate(
            ticket, next(self._ids), list(tokens), limits=_core.RunLimits(max_outputs=n), returns=returns, **given
        )
        return ticket

    def open(self, **given: Any) -> int:
        sequence = next(self._ids)
        self.core.open(sequence, **given)
        return sequence

    def run(self, sequence: int, tokens: Sequence[int] = (), n: int = 1, **given: Any) -> int:
        ticket = next(self._tickets)
        self.events[ticket] = []
        returns = _core.RunReturns(logits=given.pop("logits", False), scores=given.pop("scores", False))
        self.core.run(ticket, sequence, list(tokens), limits=_core.RunLimits(max_outputs=n), returns=returns, **given)
        return ticket

    def wait(self, *tickets: int) -> None:
        """Waits until each of these tickets has ended."""
        while not all(self.ended(ticket) for ticket in tickets):
            select.select([self.core.event_descriptor()], [], [])
            for event in self.core.drain_events():
                self.events[event.ticket].append(event)

    def ended(self, ticket: int) -> bool:
        return any(isinstance(e, _core.FinishedEvent | _core.FailedEvent) for e in self.events[ticket])

    def outputs(self, ticket: int) -> list[int]:
        """Returns the whole output of a run, which must not have failed."""
        self.wait(ticket)
        assert [type(e) for e in self.events[ticket] if isinstance(e, _core.FailedEvent)] == []
        return [e.token for e in self.events[ticket] if isinstance(e, _core.TokenEvent)]

    def rows(self, ticket: int) -> list[bytes]:
        """Returns the logits that each output was drawn from, bit for bit."""
        self.wait(ticket)
        return [e.logits.tobytes() for e in self.events[ticket] if isinstance(e, _core.TokenEvent)]


def collect_from(engine: Any, *tickets: int) -> list[Any]:
    """Returns the events of an engine until each of these tickets has ended."""
    events: list[Any] = []
    left = set(tickets)
    while left:
        readable, _, _ = select.select([engine.event_descriptor()], [], [], HANGS_AFTER)
        assert readable, f"no ending of {left}"
        for event in engine.drain_events():
            events.append(event)
            if isinstance(event, _core.FinishedEvent | _core.FailedEvent | _core.DoneEvent):
                left.discard(event.ticket)
    return events
