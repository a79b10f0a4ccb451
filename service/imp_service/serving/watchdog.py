"""Looks after what must not stand still: the engine, whose silence ends liveness, and each request by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from imp_service.config.server_settings import Watchdog as WatchdogSettings
from imp_service.serving.load_meter import SAMPLE_SECONDS, LoadMeter
from imp_service.serving.refusal import Refusal
from imp_service.telemetry import Telemetry
from imp_service.telemetry.engine_numbers import StepGraphs

NS = 1e-9
# The engine is looked at this often within the limit, so that a limit is passed by little.
LOOKS_PER_LIMIT = 10
# While nobody calls and the engine rests nothing can stand still, and a server that does nothing costs nothing.
REST_SECONDS = 30.0
# An engine that steps gives each running sequence a place in every step; one may be under way already.
STEPS_THAT_TELL = 2


class EngineBeat(Protocol):
    """What is read of the core's EngineStats."""

    @property
    def n_steps(self) -> int: ...
    @property
    def n_preemptions(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def silence_ns(self) -> int: ...
    @property
    def graphs(self) -> StepGraphs | None: ...
    @property
    def stopped(self) -> bool: ...


class Watched(Protocol):
    """A request that has a sequence in the engine."""

    @property
    def request_id(self) -> str: ...
    @property
    def has_started(self) -> bool:
        """Its prompt is evaluated: it is neither queued nor in prefill."""

    @property
    def is_waiting(self) -> bool:
        """It waits for the engine: neither paused, nor busy with its caller."""

    @property
    def is_open(self) -> bool:
        """As far as it knows, the engine still runs it."""

    @property
    def n_output_tokens(self) -> int: ...
    @property
    def n_unread_messages(self) -> int: ...
    def end(self, error: Exception) -> None:
        """Makes the request end with this error."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """A request as it was when it last moved."""

    at: float
    marks: tuple[object, ...]
    n_steps: int
    n_preemptions: int


class Watchdog:
    """On the event loop's thread: run() looks again and again, look() once."""

    def __init__(
        self,
        settings: WatchdogSettings,
        beat: Callable[[], EngineBeat | None],
        requests: Callable[[], Iterable[Watched]],
        load: LoadMeter,
        telemetry: Telemetry,
        *,
        is_called: Callable[[], bool],
        on_stopped: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`is_called`: a request is under way; whoever begins one calls wake().

        `on_stopped` is called where the engine has ended without a word of why, once or more.
        """
        self.follow(settings)
        self._beat = beat
        self._requests = requests
        self._load = load
        self._telemetry = telemetry
        self._is_called = is_called
        self._called = asyncio.Event()
        self._on_stopped = on_stopped
        self._has_seen_stop = False
        self._n_failed_captures = 0
        self._clock = clock
        self._sights: dict[tuple[int, str], _Sight] = {}
        self._watchers: list[Callable[[bool], None]] = []
        # The engine makes steps, or has nothing to do.
        self.is_alive = True

    def follow(self, settings: WatchdogSettings) -> None:
        """Takes new limits, from the next look on."""
        self._engine_stall = settings.engine_stall.total_seconds()
        self._request_stall = settings.request_stall.total_seconds()

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Tells `watcher` whenever is_alive changes."""
        self._watchers.append(watcher)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                self.look()
                is_at_rest = self._is_at_rest()
            except Exception as error:  # a watchdog that dies of one request watches nothing any more
                self._telemetry.log.raised("watchdog", error)
                is_at_rest = False
            if is_at_rest:
                await self._rest()
            else:
                limit = min(self._engine_stall, self._request_stall)
                await asyncio.sleep(min(SAMPLE_SECONDS, limit / LOOKS_PER_LIMIT))

    def wake(self) -> None:
        """Somebody calls: from now on it looks often."""
        self._called.set()

    async def _rest(self) -> None:
        self._called.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                await self._called.wait()

    def _is_at_rest(self) -> bool:
        beat = self._beat()
        if beat is None or self._is_called() or not self.is_alive:
            return False
        return beat.silence_ns == 0 and beat.waiting == 0 and not beat.stopped

    def look(self) -> None:
        """Judges everything as it is now."""
        self._load.sample()
        beat = self._beat()
        if beat is None:
            return
        self._judge_engine(beat)
        self._judge_graphs(beat.graphs)
        if beat.stopped and self._has_seen_stop:
            self._on_stopped()
        self._has_seen_stop = beat.stopped  # twice, as an engine that can say why does so in the meantime
        sights, self._sights = self._sights, {}
        for request in list(self._requests()):
            self._judge_request(request, beat, sights.get(_key(request)))

    def _judge_engine(self, beat: EngineBeat) -> None:
        is_alive = beat.silence_ns * NS <= self._engine_stall
        if is_alive is self.is_alive:
            return
        self.is_alive = is_alive
        if is_alive:
            self._telemetry.log.warning("engine alive", message="the engine steps again")
        else:
            self._telemetry.log.error("engine stalled", silence=beat.silence_ns * NS, steps=beat.n_steps)
        for watcher in self._watchers:
            watcher(is_alive)

    def _judge_graphs(self, graphs: StepGraphs | None) -> None:
        """Says once of each failure that steps take longer than they could."""
        if graphs is None or graphs.failures == self._n_failed_captures:
            return
        self._n_failed_captures = graphs.failures
        self._telemetry.log.warning(
            "capture failed",
            message="steps of this batch size are launched op by op",
            why=graphs.last_failure,
            failures=graphs.failures,
        )

    def _judge_request(self, request: Watched, beat: EngineBeat, before: _Sight | None) -> None:
        if not request.has_started or not request.is_waiting:
            return
        marks = (request.is_open, request.n_output_tokens, request.n_unread_messages)
        now = self._clock()
        if before is None or before.marks != marks:
            self._sights[_key(request)] = _Sight(now, marks, beat.n_steps, beat.n_preemptions)
            return
        self._sights[_key(request)] = before
        if now - before.at <= self._request_stall or not _must_have_moved(request, beat, before):
            return
        self._telemetry.metrics.stalled.inc()
        self._telemetry.log.error(
            "request stalled",
            id=request.request_id,
            seconds=now - before.at,
            is_open=request.is_open,
            output_tokens=request.n_output_tokens,
            unread_messages=request.n_unread_messages,
            steps=beat.n_steps - before.n_steps,
            silence=beat.silence_ns * NS,
        )
        message = f"no progress for {now - before.at:.1f} s, at most watchdog.request_stall = {self._request_stall:g} s"
        request.end(Refusal("STALLED", message))


def _key(request: Watched) -> tuple[int, str]:
    # An object's place in memory may be another's by the next look.
    return id(request), request.request_id


def _must_have_moved(request: Watched, beat: EngineBeat, before: _Sight) -> bool:
    """Whether standing still is a fault: not while one long step runs, nor where it may have been preempted."""
    is_at_rest = beat.silence_ns == 0 and beat.waiting == 0
    if not request.is_open or is_at_rest:
        return True
    return beat.n_preemptions == before.n_preemptions and beat.n_steps - before.n_steps >= STEPS_THAT_TELL
