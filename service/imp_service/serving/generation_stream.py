"""The output of a generation for a reader on the event loop: merges unread tokens, and pauses if they are too many."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self, cast

from imp_service.api.replies import Chunk, Finished, Reply, SparsePrefillReport, Started
from imp_service.core import EngineClient, Event, StartedEvent, TokenEvent
from imp_service.generation.fold import AllowNext, sparse_prefill_of
from imp_service.generation.run import Done, GenerationPlan, GenerationRun
from imp_service.serving.refusal import Refusal

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Limits of chunks and of unread output."""

    # In one chunk.
    max_tokens: int
    # Seconds that a token may wait to share a chunk; the first of a sequence does not wait.
    max_delay: float
    # Bytes of unread output at which the sequences pause; at half of this they resume.
    max_bytes: float
    # Seconds without a read, while it is paused or has ended, until the call fails.
    timeout: float
    # Bytes of memory that an unread token takes.
    token_bytes: int


class StreamWatcher(Protocol):
    """Gets the engine's events as they arrive, and the result when the reader takes it."""

    @property
    def sampled(self) -> Callable[[int, float, int], None]: ...
    def started(self, n_prompt: int, n_cached: int, sparse: SparsePrefillReport | None) -> None: ...
    def began_again(self, n_tokens: int, n_cached: int) -> None: ...
    def resumed(self, n_told: int) -> None: ...
    def finished(self, replies: Sequence[Finished]) -> None: ...


class GenerationStream:
    """For one task, on the event loop's thread: `async with` it, and await its replies one by one.

    Events are processed as they arrive, so stop strings and masks never wait for the reader. The reader is away from
    the moment it gets a reply until it asks for the next one.
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
        interrupt: Callable[[Exception], None],
    ) -> None:
        """Submits the generation. Raises if the engine refuses it.

        `begin_work` runs a function on a worker, for masks. `interrupt` ends the call of a reader that is away, with an
        error.
        """
        self._limits = limits
        self._watcher = watcher
        self._sampled = watcher.sampled
        self._clock = clock
        self._interrupt = interrupt
        self._loop = asyncio.get_running_loop()
        self.n_sequences = len(plan.sequences)
        self._finished: list[Finished] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_closing = False
        self._failure: Exception | None = None
        self.has_started = False
        # Why end() was called; the engine may have ended it before, for another reason.
        self.asked_end = ""
        # When the reader left, and when the first reply after that was ready.
        self._away_since: float | None = None
        self._unread_since: float | None = None
        self._blocked = 0.0
        self.is_paused = False
        # Until this timer fires, unread tokens wait for more; None if none wait.
        self._delay: asyncio.TimerHandle | None = None
        self._delay_is_over = False
        self._slow: asyncio.TimerHandle | None = None
        self._begin_work = begin_work
        self._run = GenerationRun(client, plan, self._take_event, self._compute)
        self._limit = self._loop.call_later(max(time_limit, 0.0), self.end, "time_limit")

    @property
    def n_output_tokens(self) -> int:
        """The number of tokens that the caller has received or will receive."""
        return self._run.fold.n_tokens

    @property
    def n_unread_messages(self) -> int:
        """Messages that wait for the reader."""
        return self._run.fold.n_unread_messages(self._limits.max_tokens)

    @property
    def told(self) -> Sequence[Reply]:
        """The replies that the caller of a resumed request has, once its start was taken. See GenerationFold.told."""
        return self._run.fold.told

    @property
    def is_open(self) -> bool:
        """The engine still runs it."""
        return self._run.is_open

    @property
    def is_waiting(self) -> bool:
        """The reader waits for the engine."""
        return self._away_since is None and not self.is_paused

    def end(self, reason: str) -> None:
        """Ends every sequence now. The reader gets the output so far, and `finished` with this reason."""
        self.asked_end = reason
        if self._run.is_open and not self._is_closing:
            self._run.end(reason)

    async def next_reply(self) -> Reply | None:
        """The next reply; None after the last. Raises the failure that ended the generation."""
        self._reader_returned()
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._limits.max_delay or not self._is_held_back():
                reply = self._run.next_reply(self._limits.max_tokens)
                if reply is not None:
                    if not self._run.fold.n_unread_tokens:
                        self._end_merging()
                    self._reader_left()
                    return reply if isinstance(reply, Chunk) else self._noted(reply)
                if not self._run.is_open:
                    if self._run.failure is not None:
                        raise self._run.failure
                    return None
            self._waiter = self._loop.create_future()
            await self._waiter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Cancels what still runs. A session keeps the tokens up to that point."""
        self._is_closing = True
        for timer in (self._limit, self._delay, self._slow):
            if timer is not None:
                timer.cancel()
        if self._run.begin_leaving():
            while not self._run.has_settled():
                self._waiter = self._loop.create_future()
                await self._waiter

    # Events of the engine.

    def _take_event(self, event: Event) -> None:
        if self._is_closing:
            self._run.keep(event)
            self._wake()
            return
        try:
            is_output = self._run.take(event)
        except Exception as error:
            # It ends this stream only: the events of others must still be passed on.
            self._fail(error)
            return
        now = self._clock()
        if is_output:
            self._sampled(1, now, cast(TokenEvent, event).stream)
        elif isinstance(event, StartedEvent):
            self._begin(event)
        self._notify_reader(now)

    def _begin(self, event: StartedEvent) -> None:
        """A prompt is evaluated. The sequences of a resumed request have one each, with the outputs behind it."""
        n_told, n_cached = self._run.fold.n_again(event), event.n_cached_tokens
        if not self.has_started:
            n_prompt = event.n_tokens - n_told
            self._watcher.started(n_prompt, min(n_cached, n_prompt), sparse_prefill_of(event))
            n_cached -= min(n_cached, n_prompt)
        else:
            n_told = event.n_tokens
        self.has_started = True
        if self._run.fold.is_resumed:
            self._watcher.began_again(n_told, n_cached)

    def _compute(self, work: Callable[[], AllowNext], done: Done) -> None:
        """Computes a mask on a worker, since some take long."""
        self._begin_work(work).add_done_callback(lambda computed: self._take_mask(computed, done))

    def _take_mask(self, computed: asyncio.Future[AllowNext], done: Done) -> None:
        # Always read: asyncio logs exceptions that nobody has read.
        error = None if computed.cancelled() else computed.exception()
        if computed.cancelled() or self._is_closing or not self._run.is_open:
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
            self._notify_reader(self._clock())

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._wake()

    def _notify_reader(self, now: float) -> None:
        """Wakes the reader if a reply is ready for it."""
        if self._away_since is None:
            if not self._limits.max_delay or not self._is_held_back():
                self._wake()
        else:
            if self._unread_since is None:
                self._unread_since = now
            self._check_slow_reader()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # Merging.

    def _is_held_back(self) -> bool:
        """Whether the unread tokens wait for more, to share a chunk."""
        limits, fold = self._limits, self._run.fold
        if self._delay_is_over or self.is_paused or not self._run.is_open or fold.is_reply_due(limits.max_tokens):
            return False
        if fold.n_unread_tokens and self._delay is None and limits.max_delay != math.inf:
            self._delay = self._loop.call_later(limits.max_delay, self._end_delay)
        return True

    def _end_delay(self) -> None:
        self._delay, self._delay_is_over = None, True
        self._wake()

    def _end_merging(self) -> None:
        """Nothing is unread: the next token starts a new delay."""
        self._delay_is_over = False
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None

    # While the reader is away.

    def _reader_left(self) -> None:
        self._away_since = self._clock()
        fold = self._run.fold
        if fold.n_unread_tokens or not self._run.is_open:
            self._unread_since = self._away_since
        if self.is_paused and self._unread_bytes <= self._limits.max_bytes / 2:
            self._pause(False)
        self._check_slow_reader()

    def _reader_returned(self) -> None:
        if self._unread_since is not None:
            self._blocked += self._clock() - self._unread_since
        self._away_since = self._unread_since = None

    @property
    def _unread_bytes(self) -> int:
        return self._run.fold.n_unread_tokens * self._limits.token_bytes

    def _check_slow_reader(self) -> None:
        if not self.is_paused and self._run.is_open and self._unread_bytes > self._limits.max_bytes:
            self._pause(True)
        # A request that has ended is kept only for its reader.
        if self._slow is None and (self.is_paused or not self._run.is_open) and self._limits.timeout != math.inf:
            self._slow = self._loop.call_later(self._limits.timeout, self._check_timeout)

    def _pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        if self._run.is_open:
            self._run.pause(is_paused)

    def _check_timeout(self) -> None:
        self._slow = None
        if self._away_since is None or not (self.is_paused or not self._run.is_open):
            return
        remaining = self._away_since + self._limits.timeout - self._clock()
        if remaining > 0:
            self._slow = self._loop.call_later(remaining, self._check_timeout)
            return
        n_unread = self._run.fold.n_unread_tokens
        timeout = self._limits.timeout
        self._interrupt(
            Refusal(
                "SLOW_CLIENT", f"nothing was read for {timeout:g} s, {n_unread} tokens wait", {"unread": str(n_unread)}
            )
        )

    def _noted(self, reply: Started | Finished) -> Reply:
        if isinstance(reply, Finished):
            return self._finish(reply)
        if self._run.fold.is_resumed:
            self._watcher.resumed(reply.resumed_tokens)
        return reply

    def _finish(self, reply: Finished) -> Finished:
        if reply.timings is not None:
            reply = replace(reply, timings=replace(reply.timings, blocked=self._blocked))
        self._finished.append(reply)
        if len(self._finished) == self._run.fold.n_ends:
            self._watcher.finished(self._finished)
        return reply
