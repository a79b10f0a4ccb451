"""Runs prompts and generations on the engine, timed by the engine's own clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from imp_service import _core
from imp_service.core.engine_client import EngineClient, Event
from imp_service.core.errors import make_error

Submit = Callable[[int], None]

NS = 1e-9


class EngineRuns:
    """Runs over random tokens, without the prefix cache. For one thread."""

    def __init__(self, client: EngineClient, n_tokens: int) -> None:
        self.client = client
        self._n_tokens = n_tokens
        self._random = random.Random(0)

    def tokens(self, n: int) -> list[int]:
        """Random tokens."""
        return [self._random.randrange(self._n_tokens) for _ in range(n)]

    def prefill(self, n_tokens: int) -> float:
        """Seconds from a prompt's first step to its first output."""
        sequence, tokens = self.client.next_sequence(), self.tokens(n_tokens)
        limits = _core.RunLimits(max_outputs=1, ends_at_eos=False)
        (finished,) = self.finish(
            [lambda ticket: self.client.engine.generate(ticket, sequence, tokens, bypass_prefix=True, limits=limits)]
        )
        return finished.timings.prefill_ns * NS

    def finish(self, submits: Sequence[Submit]) -> list[_core.FinishedEvent]:
        """Submits runs and waits for their ends. Raises the first failure."""
        return [event for event in self.answers(submits) if isinstance(event, _core.FinishedEvent)]

    def answers(
        self, submits: Sequence[Submit], on_event: Callable[[Event], None] | None = None
    ) -> list[_core.FinishedEvent | _core.DoneEvent]:
        """Submits commands and waits for the last event of each. `on_event` gets the events before it."""
        ends: list[_core.FinishedEvent | _core.DoneEvent | _core.FailedEvent] = []

        def take(event: Event) -> None:
            if isinstance(event, _core.FinishedEvent | _core.DoneEvent | _core.FailedEvent):
                ends.append(event)
            elif on_event is not None:
                on_event(event)

        tickets = [self.client.expect(take) for _ in submits]
        try:
            for submit, ticket in zip(submits, tickets, strict=True):
                submit(ticket)
            self.client.wait(lambda: len(ends) == len(submits))
        finally:
            for ticket in tickets:
                self.client.forget(ticket)
        answers: list[_core.FinishedEvent | _core.DoneEvent] = []
        for end in ends:
            if isinstance(end, _core.FailedEvent):
                raise make_error(end.reason, end.message, end.details)
            answers.append(end)
        return answers


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of a step in the sampler, which grow with the vocabulary, and in the engine itself."""

    sampling: float
    engine: float


class DecodeBatch:
    """Sessions that hold `depth` tokens each, to decode from repeatedly."""

    def __init__(self, runs: EngineRuns, batch: int, depth: int) -> None:
        self._runs = runs
        self._depth = depth
        self._sessions = [runs.client.next_sequence() for _ in range(batch)]

    def __enter__(self) -> Self:
        for session in self._sessions:
            # Shared blocks would be read from the CPU's caches.
            self._engine.open(session, kind="session", bypass_prefix=True)
        if self._depth > 0:
            limits = _core.RunLimits(max_outputs=0)
            self._runs.finish([self._run(session, self._depth, limits) for session in self._sessions])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._runs.client.is_closed:
            self._runs.answers([self._close(session) for session in self._sessions])

    def decode(self, n_tokens: int) -> float:
        """Mean seconds from the first output of a sequence to its last. Afterwards each holds `depth` tokens again."""
        limits = _core.RunLimits(max_outputs=n_tokens, ends_at_eos=False)
        finished = self._runs.finish([self._run(session, 1, limits) for session in self._sessions])
        self._runs.answers([self._truncate(session) for session in self._sessions])
        return sum(event.timings.decode_ns for event in finished) / len(finished) * NS

    def step_costs(self, n_tokens: int) -> StepCosts:
        """The time of a step outside its forward pass: the mean over one decode()."""
        before = self._engine.stats()
        self.decode(n_tokens)
        after = self._engine.stats()
        n_steps = after.n_steps - before.n_steps
        sampling = (after.sample_ns - before.sample_ns) / n_steps * NS
        forward = (after.forward_ns - before.forward_ns) / n_steps * NS
        return StepCosts(sampling, (after.step_ns - before.step_ns) / n_steps * NS - forward - sampling)

    @property
    def _engine(self) -> _core.Engine:
        return self._runs.client.engine

    def _run(self, session: int, n_tokens: int, limits: _core.RunLimits) -> Submit:
        tokens = self._runs.tokens(n_tokens)
        return lambda ticket: self._engine.run(ticket, session, tokens, limits=limits)

    def _truncate(self, session: int) -> Submit:
        return lambda ticket: self._engine.truncate(ticket, session, self._depth)

    def _close(self, session: int) -> Submit:
        return lambda ticket: self._engine.close(ticket, session)
