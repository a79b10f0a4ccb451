"""Detects stalls of the engine, for which the liveness probe fails, and of each request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imp_service.config.server_settings import WatchdogSettings
from imp_service.serving.refusal import Refusal
from imp_service.serving.utilization import SAMPLE_SECONDS, UtilizationMeter
from imp_service.telemetry import Telemetry

if TYPE_CHECKING:
    from imp_service._core import EngineStats, StepGraphCounts

NS = 1e-9
# Checks within the time limit of a stall, so that a stall is found soon after the limit.
CHECKS_PER_LIMIT = 10
# Without requests nothing can stall, and an idle server should use no processor time.
IDLE_SECONDS = 30.0
# A request without progress in so many steps stalls, as each step has every running sequence. The first of these steps
# may have begun before the request's last progress.
STEPS_OF_A_STALL = 2


class WatchedRequest(Protocol):
    """A request that has a sequence in the engine."""

    @property
    def request_id(self) -> str: ...
    @property
    def has_started(self) -> bool:
        """Its prompt is evaluated: it is not queued and not in prefill."""

    @property
    def is_waiting(self) -> bool:
        """It waits for the engine: it is not paused, and its caller reads."""

    @property
    def is_open(self) -> bool:
        """The engine has not reported its end."""

    @property
    def n_output_tokens(self) -> int: ...
    @property
    def n_unread_messages(self) -> int: ...
    def end(self, error: Exception) -> None:
        """Ends the request with this error."""


@dataclass(frozen=True, slots=True)
class _LastProgress:
    """A request when it last made progress."""

    at: float
    counts: tuple[object, ...]
    n_steps: int
    n_preemptions: int


class Watchdog:
    """On the event loop's thread. run() calls check() repeatedly."""

    def __init__(
        self,
        settings: WatchdogSettings,
        engine: Callable[[], EngineStats | None],
        requests: Callable[[], Iterable[WatchedRequest]],
        utilization: UtilizationMeter,
        telemetry: Telemetry,
        *,
        is_called: Callable[[], bool],
        on_stopped: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`is_called` returns whether a request runs; the beginning of one must call wake().

        `on_stopped` is called, perhaps several times, if the engine has ended without an error.
        """
        self.follow(settings)
        self._progress = engine
        self._requests = requests
        self._utilization = utilization
        self._telemetry = telemetry
        self._is_called = is_called
        self._called = asyncio.Event()
        self._on_stopped = on_stopped
        self._has_seen_stop = False
        self._n_failed_captures = 0
        self._clock = clock
        self._last_progress: dict[tuple[int, str], _LastProgress] = {}
        self._watchers: list[Callable[[bool], None]] = []
        # The engine steps, or has nothing to do.
        self.is_alive = True

    def follow(self, settings: WatchdogSettings) -> None:
        """Applies new limits from the next check on."""
        self._engine_stall = settings.engine_stall.total_seconds()
        self._request_stall = settings.request_stall.total_seconds()

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Calls `watcher` whenever is_alive changes."""
        self._watchers.append(watcher)

    async def run(self) -> None:
        """Checks until it is cancelled."""
        while True:
            try:
                self.check()
                is_idle = self._may_wait_idle()
            except Exception as error:  # a bug in one check must not end the watchdog
                self._telemetry.log.raised("watchdog", error)
                is_idle = False
            if is_idle:
                await self._wait_idle()
            else:
                limit = min(self._engine_stall, self._request_stall)
                await asyncio.sleep(min(SAMPLE_SECONDS, limit / CHECKS_PER_LIMIT))

    def wake(self) -> None:
        """A request begins: check often from now on."""
        self._called.set()

    async def _wait_idle(self) -> None:
        self._called.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                await self._called.wait()

    def _may_wait_idle(self) -> bool:
        engine = self._progress()
        if engine is None or self._is_called() or not self.is_alive:
            return False
        return engine.silence_ns == 0 and engine.waiting == 0 and not engine.stopped

    def check(self) -> None:
        """Checks the engine and every request now."""
        self._utilization.sample()
        engine = self._progress()
        if engine is None:
            return
        self._check_engine(engine)
        self._check_graphs(engine.graphs)
        if engine.stopped and self._has_seen_stop:
            self._on_stopped()
        self._has_seen_stop = engine.stopped  # seen twice: an engine that ends with an error reports it in between
        last, self._last_progress = self._last_progress, {}
        for request in list(self._requests()):
            self._check_request(request, engine, last.get(_key(request)))

    def _check_engine(self, engine: EngineStats) -> None:
        is_alive = engine.silence_ns * NS <= self._engine_stall
        if is_alive is self.is_alive:
            return
        self.is_alive = is_alive
        if is_alive:
            self._telemetry.log.warning("engine alive", message="the engine steps again")
        else:
            self._telemetry.log.error("engine stalled", silence=engine.silence_ns * NS, steps=engine.n_steps)
        for watcher in self._watchers:
            watcher(is_alive)

    def _check_graphs(self, graphs: StepGraphCounts | None) -> None:
        """Logs each failed capture of a step graph once: steps are slower without it."""
        if graphs is None or graphs.failures == self._n_failed_captures:
            return
        self._n_failed_captures = graphs.failures
        self._telemetry.log.warning(
            "capture failed",
            message="steps of this batch size are launched op by op",
            why=graphs.last_failure,
            failures=graphs.failures,
        )

    def _check_request(self, request: WatchedRequest, engine: EngineStats, before: _LastProgress | None) -> None:
        if not request.has_started or not request.is_waiting:
            return
        counts = (request.is_open, request.n_output_tokens, request.n_unread_messages)
        now = self._clock()
        if before is None or before.counts != counts:
            self._last_progress[_key(request)] = _LastProgress(now, counts, engine.n_steps, engine.n_preemptions)
            return
        self._last_progress[_key(request)] = before
        if now - before.at <= self._request_stall or not _should_have_progressed(request, engine, before):
            return
        self._telemetry.metrics.stalled.inc()
        self._telemetry.log.error(
            "request stalled",
            id=request.request_id,
            seconds=now - before.at,
            is_open=request.is_open,
            output_tokens=request.n_output_tokens,
            unread_messages=request.n_unread_messages,
            steps=engine.n_steps - before.n_steps,
            silence=engine.silence_ns * NS,
        )
        message = f"no progress for {now - before.at:.1f} s, at most watchdog.request_stall = {self._request_stall:g} s"
        request.end(Refusal("STALLED", message))


def _key(request: WatchedRequest) -> tuple[int, str]:
    # By the next check another object may have this id().
    return id(request), request.request_id


def _should_have_progressed(request: WatchedRequest, engine: EngineStats, before: _LastProgress) -> bool:
    """Whether a lack of progress is a stall. One long step is not a stall, nor is a possible preemption."""
    is_idle = engine.silence_ns == 0 and engine.waiting == 0
    if not request.is_open or is_idle:
        return True
    return engine.n_preemptions == before.n_preemptions and engine.n_steps - before.n_steps >= STEPS_OF_A_STALL
