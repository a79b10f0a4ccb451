"""A generation as a reader that awaits it sees it: unread tokens are merged, a slow reader pauses its own sequences."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self, cast

from imp_service.core import EngineClient, Event, StartedEvent, TokenEvent
from imp_service.generation.fold import AllowNext
from imp_service.generation.replies import Finished, Reply
from imp_service.generation.run import Done, GenerationPlan, GenerationRun
from imp_service.serving.refusal import Refusal

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """How output waits for its reader."""

    # Of one chunk.
    max_tokens: int
    # Seconds that a token may wait for company; the first of a sequence never does.
    max_delay: float
    # Unread beyond this, the sequences pause; below half of it they go on.
    max_bytes: float
    # Seconds without a read while it pauses, or after its end.
    timeout: float
    # What a token takes until it is read.
    token_bytes: int


class StreamWatcher(Protocol):
    """Told of what comes from the engine, as it comes, and of the result when it is handed out."""

    @property
    def sampled(self) -> Callable[[int, float, int], None]: ...
    def started(self, n_prompt: int, n_cached: int) -> None: ...
    def finished(self, replies: Sequence[Finished]) -> None: ...


class GenerationStream:
    """On the event loop's thread, for one task: `async with` it, and await its replies one by one.

    Events are folded as they come, whatever the reader does, so that stop strings and masks never wait for it. The
    reader is away from the moment it has a reply until it asks for the next one.
    """

    def __init__(
        self,
        client: EngineClient,
        plan: GenerationPlan,
        limits: OutboxLimits,
        watcher: StreamWatcher,
        *,
        clock: Clock,
        begin_work: Callable[[Callable[[], AllowNext]], asyncio.Future[AllowNext]],
        time_limit: float,
        give_up: Callable[[Exception], None],
    ) -> None:
        """Submits; raises what the engine refuses at its door.

        `begin_work` has a worker do it: masks are computed there. `give_up` interrupts the reader where it is away, and
        makes it end with the error that it is given.
        """
        self._limits = limits
        self._watcher = watcher
        self._sampled = watcher.sampled
        self._clock = clock
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self.n_sequences = len(plan.sequences)
        self._finished: list[Finished] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_leaving = False
        self._failure: Exception | None = None
        self.has_started = False
        # Since when the reader is away, and since when there is something for it to take meanwhile.
        self._away_since: float | None = None
        self._waits_since: float | None = None
        self._blocked = 0.0
        self.is_paused = False
        # Tokens are held back until it fires; None where none are.
        self._delay: asyncio.TimerHandle | None = None
        self._delay_is_over = False
        self._slow: asyncio.TimerHandle | None = None
        self._begin_work = begin_work
        self._run = GenerationRun(client, plan, self._take_event, self._compute)
        self._limit = self._loop.call_later(max(time_limit, 0.0), self.end, "time_limit")

    @property
    def n_output_tokens(self) -> int:
        """Tokens that the caller got or will get."""
        return self._run.fold.n_tokens

    @property
    def n_unread_messages(self) -> int:
        """Messages that wait for the reader."""
        return self._run.fold.n_unread_messages(self._limits.max_tokens)

    @property
    def is_open(self) -> bool:
        """The engine has not ended it."""
        return self._run.is_open

    @property
    def is_waiting(self) -> bool:
        """Its reader waits for the engine."""
        return self._away_since is None and not self.is_paused

    def end(self, reason: str) -> None:
        """Ends every sequence where it is; the reader gets what there is, and `finished`."""
        if self._run.is_open and not self._is_leaving:
            self._run.end(reason)

    async def next_reply(self) -> Reply | None:
        """The next reply; None after the last. Raises the failure that ended it."""
        self._come_back()
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._limits.max_delay or not self._is_held_back():
                reply = self._run.next_reply(self._limits.max_tokens)
                if reply is not None:
                    self._go_away()
                    return self._finish(reply) if isinstance(reply, Finished) else reply
                if not self._run.is_open:
                    if self._run.failure is not None:
                        raise self._run.failure
                    return None
                self._end_merging()
            self._waiter = self._loop.create_future()
            await self._waiter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Cancels what still runs; a session is left with what was taken."""
        self._is_leaving = True
        for timer in (self._limit, self._delay, self._slow):
            if timer is not None:
                timer.cancel()
        if self._run.begin_leaving():
            while not self._run.has_settled():
                self._waiter = self._loop.create_future()
                await self._waiter

    # What comes from the engine.

    def _take_event(self, event: Event) -> None:
        if self._is_leaving:
            self._run.keep(event)
            self._wake()
            return
        try:
            is_output = self._run.take(event)
        except Exception as error:
            # It ends this stream alone: the loop has events of others to pass on.
            self._fail(error)
            return
        now = self._clock()
        if is_output:
            self._sampled(1, now, cast(TokenEvent, event).stream)
        elif isinstance(event, StartedEvent):
            self.has_started = True
            self._watcher.started(event.n_tokens, event.n_cached_tokens)
        self._tell(now)

    def _compute(self, work: Callable[[], AllowNext], done: Done) -> None:
        """Of a mask, on a worker: the library takes long for some."""
        self._begin_work(work).add_done_callback(lambda computed: self._take_mask(computed, done))

    def _take_mask(self, computed: asyncio.Future[AllowNext], done: Done) -> None:
        # Looked at, or asyncio logs an error that nobody looked at.
        error = None if computed.cancelled() else computed.exception()
        if computed.cancelled() or self._is_leaving or not self._run.is_open:
            return
        try:
            if error is not None:
                raise error
            has_ended = done(computed.result())
        except Exception as failure:
            self._run.leave()
            self._fail(failure)
            return
        if has_ended:
            self._tell(self._clock())

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._wake()

    def _tell(self, now: float) -> None:
        """The reader, of what has come."""
        if self._away_since is None:
            if not self._limits.max_delay or not self._is_held_back():
                self._wake()
        else:
            if self._waits_since is None:
                self._waits_since = now
            self._hold_where_slow()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # Merging.

    def _is_held_back(self) -> bool:
        """What is unread waits for company."""
        limits, fold = self._limits, self._run.fold
        if self._delay_is_over or self.is_paused or not self._run.is_open or fold.must_be_told(limits.max_tokens):
            return False
        if self._delay is None and fold.n_unread_tokens and limits.max_delay != math.inf:
            self._delay = self._loop.call_later(limits.max_delay, self._end_delay)
        return True

    def _end_delay(self) -> None:
        self._delay, self._delay_is_over = None, True
        self._wake()

    def _end_merging(self) -> None:
        """Nothing is unread: the next token's wait is its own."""
        self._delay_is_over = False
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None

    # The reader's absence.

    def _go_away(self) -> None:
        self._away_since = self._clock()
        fold = self._run.fold
        if fold.n_unread_tokens or not self._run.is_open:
            self._waits_since = self._away_since
        if self.is_paused and self._unread_bytes <= self._limits.max_bytes / 2:
            self._pause(False)
        self._hold_where_slow()

    def _come_back(self) -> None:
        if self._waits_since is not None:
            self._blocked += self._clock() - self._waits_since
        self._away_since = self._waits_since = None

    @property
    def _unread_bytes(self) -> int:
        return self._run.fold.n_unread_tokens * self._limits.token_bytes

    def _hold_where_slow(self) -> None:
        if not self.is_paused and self._run.is_open and self._unread_bytes > self._limits.max_bytes:
            self._pause(True)
        # After the end nothing more comes, and nothing but the reader keeps the request.
        if self._slow is None and (self.is_paused or not self._run.is_open) and self._limits.timeout != math.inf:
            self._slow = self._loop.call_later(self._limits.timeout, self._judge_slowness)

    def _pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        if self._run.is_open:
            self._run.pause(is_paused)

    def _judge_slowness(self) -> None:
        self._slow = None
        if self._away_since is None or not (self.is_paused or not self._run.is_open):
            return
        remaining = self._away_since + self._limits.timeout - self._clock()
        if remaining > 0:
            self._slow = self._loop.call_later(remaining, self._judge_slowness)
            return
        n_unread = self._run.fold.n_unread_tokens
        timeout = self._limits.timeout
        self._give_up(
            Refusal(
                "SLOW_CLIENT", f"nothing was read for {timeout:g} s, {n_unread} tokens wait", {"unread": str(n_unread)}
            )
        )

    def _finish(self, reply: Finished) -> Finished:
        if reply.timings is not None:
            reply = replace(reply, timings=replace(reply.timings, blocked=self._blocked))
        self._finished.append(reply)
        if len(self._finished) == self.n_sequences:
            self._watcher.finished(self._finished)
        return reply
