"""The inputs of a call in the engine: a few at a time, others as these return. Never waits: its readers do."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from imp_service.api.replies import Timings
from imp_service.api.vectors import EmbedOptions, Ranking, RerankOptions, Vectors, ranked
from imp_service.core import (
    Error,
    Event,
    FailedEvent,
    FinishedEvent,
    ResourceExhausted,
    RunLimits,
    RunReturns,
    StartedEvent,
    VectorRequest,
    make_error,
)
from imp_service.generation.embedding import CallPlan
from imp_service.generation.limits import ASK_AGAIN
from imp_service.generation.run import stopped_engine_says_why
from imp_service.generation.runtime import ModelRuntime, cache_scope
from imp_service.generation.scoring import vector_of
from imp_service.generation.step import NS

# The engine has no room for a further input now.
QUEUE_FULL, TENANT_LIMIT = "QUEUE_FULL", "TENANT_LIMIT"
Work = Callable[[], object]
OnStarted = Callable[[int, int], None]


class Loop(Protocol):
    """What a run needs of an event loop."""

    def call_soon(self, work: Work, /) -> object: ...
    def call_later(self, seconds: float, work: Work, /) -> object: ...


class VectorRun:
    """For one thread at a time. Only the handlers of events run on whatever thread dispatches them.

    It submits at most `scheduler.max_running` inputs at once; those beyond its first leave half of the queue to others.
    The first failure ends the call: `failure` is its error, with the detail `index`, and the others are cancelled.
    """

    def __init__(
        self,
        runtime: ModelRuntime,
        plan: CallPlan,
        *,
        payer: str = "",
        on_done: Work | None = None,
        on_started: OnStarted | None = None,
        loop: Loop | None = None,
    ) -> None:
        """`payer` shares the engine with others; by default the plan's tenant.

        `on_started` gets the tokens of each input that is evaluated, and how many of them were cached. `on_done` is
        called once at the end. With a `loop` the run absorbs events and feeds itself; without one its reader does.
        """
        self._client = runtime.client
        self._clock = runtime.clock
        self._plan = plan
        self._payer = payer or plan.tenant
        self._scheduler = runtime.config.settings.scheduler
        self._on_done, self._on_started, self._loop = on_done, on_started, loop
        self._events: deque[tuple[int, Event]] = deque()
        self._is_due = False
        self._is_left = False
        # Inputs that the engine does not have yet.
        self._waiting = deque(range(len(plan.inputs)))
        # Ticket and sequence of each input in the engine.
        self._running: dict[int, tuple[int, int]] = {}
        self._results: list[array[float] | float | None] = [None] * len(plan.inputs)
        self._n_cached = 0
        self._began = 0.0
        self.failure: Error | None = None
        self.timings = Timings(0.0, 0.0, 0.0)
        self.n_done = 0
        self.has_started = False
        self.is_done = False

    def begin(self) -> None:
        """Submits the first inputs. Raises what the engine refuses at once."""
        self._began = self._clock()
        with self._client.together():
            if self._waiting:
                self._submit(self._waiting[0])
                self._waiting.popleft()
            self.feed()

    @property
    def has_events(self) -> bool:
        """Events wait to be absorbed."""
        return bool(self._events)

    @property
    def is_starved(self) -> bool:
        """The queue had no room for a further input, and none is in the engine: feed it again in a moment."""
        return not self.is_done and not self._running

    def absorb(self) -> None:
        """Takes the events that came, and feeds further inputs."""
        self._is_due = False
        n_before = len(self._waiting)
        while self._events and not self.is_done:
            self._take(*self._events.popleft())
        if len(self._waiting) == n_before:
            self.feed()
        else:  # the engine gave some back: not at once again
            self._feed_later()

    def feed(self) -> None:
        """Submits further inputs, if there is room. Ends the call when all have returned."""
        if self.is_done:
            return
        if self._is_left:
            self.cancel()
        elif self.n_done == len(self._results):
            self._end()
        elif self._waiting:
            try:
                with self._client.together():
                    self._submit_further()
            except Error as error:
                self.cancel(error)
            self._feed_later()

    def _feed_later(self) -> None:
        """Where no event will come."""
        if self.is_starved and self._loop is not None:
            self._loop.call_later(ASK_AGAIN, self.feed)

    def cancel(self, error: Error | None = None) -> None:
        """Ends the call: the engine ends what runs of it within one step. `failure` becomes this error, by default
        CANCELLED.
        """
        if self.is_done:
            return
        self.failure = error or make_error("CANCELLED", "the call was cancelled before its end")
        self._end_running()
        self._end()

    def leave(self) -> None:
        """The same from any thread: the reader finds the call cancelled."""
        self._is_left = True
        self._end_running()

    def _end_running(self) -> None:
        if not self._client.is_closed:
            with stopped_engine_says_why:
                for ticket, sequence in list(self._running.values()):
                    self._client.engine.end(ticket, sequence, "cancelled")

    def vectors(self) -> Vectors:
        """The results of plan_texts. Raises `failure`."""
        self._require_results()
        vectors = tuple(each for each in self._results if isinstance(each, array))
        plan = self._plan
        return Vectors(vectors, self.timings, plan.prompt_tokens, self._n_cached, plan.truncated)

    def ranking(self) -> Ranking:
        """The results of plan_documents or plan_pairs, from the best on. Raises `failure`."""
        self._require_results()
        plan, scores = self._plan, [each for each in self._results if isinstance(each, float)]
        top_n = plan.options.top_n if isinstance(plan.options, RerankOptions) else None
        return Ranking(ranked(scores, top_n), self.timings, plan.prompt_tokens, self._n_cached, plan.truncated)

    def _require_results(self) -> None:
        if self.failure is not None:
            raise self.failure
        assert self.is_done  # its reader waits

    def _submit_further(self) -> None:
        n_free = self._scheduler.max_running - len(self._running)
        n_left, _ = self._client.engine.place_of(self._payer)
        n_extra = max(n_left - self._scheduler.max_waiting // 2, 0 if self._running else 1)
        for _ in range(min(n_free, n_extra, len(self._waiting))):
            try:
                self._submit(self._waiting[0])
            except ResourceExhausted as error:
                if error.reason == QUEUE_FULL:
                    return  # later
                raise
            self._waiting.popleft()

    def _submit(self, index: int) -> None:
        client, plan, item = self._client, self._plan, self._plan.inputs[index]
        sequence = client.next_sequence()
        ticket = client.expect(partial(self._keep, index))
        self._running[index] = ticket, sequence
        try:
            client.engine.generate(
                ticket,
                sequence,
                item.ids,
                priority=plan.priority,
                tenant=self._payer,
                cache_scope=cache_scope(plan.tenant, ""),
                limits=RunLimits(max_outputs=0),
                returns=_returns_of(plan),
                second_text=-1 if item.second_text is None else item.second_text,
            )
        except BaseException as error:
            self._forget(index)
            if isinstance(error, Error):
                error.details.setdefault("index", str(index))
            raise

    def _keep(self, index: int, event: Event) -> None:
        self._events.append((index, event))
        if self._loop is not None and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.absorb)

    def _take(self, index: int, event: Event) -> None:
        if isinstance(event, FailedEvent) and event.reason == TENANT_LIMIT:  # perhaps by the call's own other inputs
            self._forget(index)
            self._waiting.appendleft(index)
        elif isinstance(event, FailedEvent):
            self._forget(index)
            self.cancel(make_error(event.reason, event.message, {**event.details, "index": str(index)}))
        elif isinstance(event, StartedEvent):
            self._read(index, event)
        elif isinstance(event, FinishedEvent):
            self._forget(index)
            if self._results[index] is None:  # ended from outside before it was evaluated
                self.cancel(make_error("CANCELLED", f"input {index} was ended: {event.reason}", {"index": str(index)}))
                return
            if self.n_done == 0:
                self.timings = Timings(event.timings.queue_ns * NS, 0.0, 0.0)
            self.n_done += 1

    def _read(self, index: int, event: StartedEvent) -> None:
        plan = self._plan
        self.has_started = True
        self._n_cached += event.n_cached_tokens
        if isinstance(plan.options, RerankOptions):
            assert plan.scorer is not None  # narrows
            self._results[index] = plan.scorer.score_of(event, is_raw=plan.options.raw_scores)
        else:
            self._results[index] = vector_of(event)
        if self._on_started is not None:
            self._on_started(event.n_tokens, event.n_cached_tokens)

    def _forget(self, index: int) -> None:
        ticket, _ = self._running.pop(index)
        self._client.forget(ticket)

    def _end(self) -> None:
        for index in list(self._running):
            self._forget(index)
        queue = self.timings.queue
        self.timings = Timings(queue, max(0.0, self._clock() - self._began - queue), 0.0)
        self.is_done = True
        self._events.clear()
        # Dropped, as they may refer to the reader, and the reader refers to this run.
        on_done, self._on_done, self._on_started, self._loop = self._on_done, None, None, None
        if on_done is not None:
            on_done()


def _returns_of(plan: CallPlan) -> RunReturns:
    """The vector as it is wanted, or the numbers of which a score is made."""
    options = plan.options
    if isinstance(options, EmbedOptions):
        vector = VectorRequest(dimensions=options.dimensions or 0, normalized=options.normalize)
        return RunReturns(vector=vector)
    if plan.scorer is not None and plan.scorer.yes_no is not None:
        return RunReturns(logits=True)
    return RunReturns(vector=VectorRequest(normalized=False))
