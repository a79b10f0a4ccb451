"""Drives an engine step by step over a script or a model, and sorts its events by ticket."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from imp_service import _core, _testing
from support.oracles.script_oracle import Sampler

NEVER = 1_000_000


class Failed(Exception):
    """A run or a command failed."""

    def __init__(self, event: _core.FailedEvent) -> None:
        super().__init__(f"{event.reason}: {event.message}")
        self.reason: str = event.reason
        self.details: dict[str, str] = event.details
        self.event = event


class TurnedEngine:
    """An engine whose clock and steps the test controls."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.events: dict[int, list[Any]] = defaultdict(list)
        self.all_events: list[Any] = []
        self._ids = itertools.count(1)
        self._tickets = itertools.count(1)

    # Commands. Each returns the ticket, or the sequence for open().

    def sequence(self) -> int:
        return next(self._ids)

    def open(self, **given: Any) -> int:
        sequence = self.sequence()
        self.core.open(sequence, **self._sampled({"sampling": Sampler(), **given}))
        return sequence

    max_draft_tokens = 0
    """Of runs that do not say."""

    def run(self, sequence: int, tokens: Sequence[int] = (), **given: Any) -> int:
        ticket = next(self._tickets)
        self.core.run(ticket, sequence, list(tokens), **self._sampled(self._limited(given)))
        return ticket

    def generate(self, tokens: Sequence[int], **given: Any) -> int:
        ticket = next(self._tickets)
        self.core.generate(
            ticket,
            given.pop("sequence", None) or self.sequence(),
            list(tokens),
            **self._sampled(self._limited({"sampling": Sampler(), **given})),
        )
        return ticket

    def command(self, name: str, *args: Any, **given: Any) -> int:
        ticket = next(self._tickets)
        getattr(self.core, name)(ticket, *args, **given)
        return ticket

    @staticmethod
    def _sampled(given: dict[str, Any]) -> dict[str, Any]:
        sampling = given.pop("sampling", None)
        if isinstance(sampling, Sampler):
            sampling = _core.SamplingOptions(**sampling.options())
        return given if sampling is None else {**given, "sampling": sampling}

    def _limited(self, given: dict[str, Any]) -> dict[str, Any]:
        limits = {
            name: given.pop(name)
            for name in ("max_outputs", "min_outputs", "must_fit", "stop_tokens", "eos_tokens", "ends_at_eos")
            if name in given
        }
        returns = {
            name: given.pop(name)
            for name in ("logprobs", "n_candidates", "logits", "scores", "first_score", "n_score_candidates", "vector")
            if name in given
        }
        # A constrained run that guesses waits for answers, which only tests of them give.
        given.setdefault("max_draft_tokens", 0 if given.get("constrained") else self.max_draft_tokens)
        return {**given, "limits": _core.RunLimits(**limits), "returns": _core.RunReturns(**returns)}

    # Time.

    def turn(self) -> bool:
        worked: bool = self.core.turn()
        for event in self.core.drain_events():
            self.events[event.ticket].append(event)
            self.all_events.append(event)
        return worked

    def turn_until_idle(self, limit: int = NEVER) -> int:
        """Turns until nothing is left to do; returns how often."""
        for n in range(limit):
            if not self.turn():
                return n
        raise AssertionError(f"still at work after {limit} turns")

    # Results.

    def tokens(self, ticket: int, stream: int = 0) -> list[int]:
        return [e.token for e in self.events[ticket] if isinstance(e, _core.TokenEvent) and e.stream == stream]

    def finished(self, ticket: int, stream: int = 0) -> Any:
        """Returns the only ending; raises Failed if it is a failure."""
        endings = [
            e
            for e in self.events[ticket]
            if isinstance(e, _core.FinishedEvent | _core.FailedEvent) and e.stream == stream
        ]
        assert len(endings) == 1, f"{len(endings)} endings"
        if isinstance(endings[0], _core.FailedEvent):
            raise Failed(endings[0])
        return endings[0]

    def started(self, ticket: int) -> Any:
        (event,) = [e for e in self.events[ticket] if isinstance(e, _core.StartedEvent)]
        return event

    def done(self, ticket: int) -> Any:
        """Returns the answer to fork, truncate, close or flush; raises Failed if it failed."""
        (event,) = self.events[ticket]
        if isinstance(event, _core.FailedEvent):
            raise Failed(event)
        return event

    def complete(self, tokens: Sequence[int], **given: Any) -> list[int]:
        """Runs a whole generation; returns its outputs."""
        ticket = self.generate(tokens, **given)
        self.turn_until_idle()
        self.finished(ticket)
        return self.tokens(ticket)

    def step(self, sequence: int, tokens: Sequence[int] = (), **given: Any) -> int | None:
        """Runs a session to the end of the run; returns the last token drawn."""
        ticket = self.run(sequence, tokens, **given)
        self.turn_until_idle()
        self.finished(ticket)
        drawn = self.tokens(ticket)
        return drawn[-1] if drawn else None

    def assert_at_rest(self, *, live: int = 0) -> None:
        """Asserts that nothing runs, and that every block is free, cached or held by a session."""
        stats = self.core.stats()
        assert (stats.running, stats.waiting, stats.waiting_tokens) == (0, 0, 0)
        total = stats.blocks_live + stats.blocks_cached + stats.blocks_free
        assert (stats.blocks_live, total) == (live, stats.blocks_free + stats.blocks_cached + live)


class ScriptEngine(TurnedEngine):
    """A TurnedEngine over a model whose logits the test defines."""

    ahead = False
    """Whether its device lets it begin a step before the one before is read."""
    drafts = -1.0
    """The share of right guesses of its drafter; below 0: it has none."""

    def __init__(self, rule: str = "hash", *, script: dict[str, Any] | None = None, **options: Any) -> None:
        given: dict[str, Any] = {
            "n_blocks": 64,
            "max_context": 256,
            "max_running": 16,
            "step_tokens": 64,
            "prefill_chunk": 32,
            "cache_secret": (3, 5),
            "fixed_depth": True,
            **options,
        }
        self.script = _testing.Script(rule, **{"ahead": self.ahead, "drafts": self.drafts, **(script or {})})
        super().__init__(_testing.ManualEngine(self.script, _core.EngineOptions(**given)))

    def evaluated(self) -> list[list[tuple[int, int]]]:
        """Returns each forward pass as (first position, rows) of its sequences."""
        return [[(rows.first_position, len(rows.tokens)) for rows in step] for step in self.core.forwards]


__all__ = ["Failed", "Sampler", "ScriptEngine", "TurnedEngine"]
