"""How busy the server is: the engine's current numbers, and rates over windows of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from imp_service.telemetry import kv_usage

if TYPE_CHECKING:
    from imp_service._core import EngineStats

CACHE_WINDOW = 60.0
OUTPUT_WINDOW = 10.0
# How often the counters are kept for the windows.
SAMPLE_SECONDS = 1.0
# The least interval of watch(). Rates change at every call of snapshot().
LEAST_INTERVAL = 0.05
NS = 1e-9


@dataclass(frozen=True, slots=True)
class Utilization:
    """The fields of imp.v1.Load: seconds, shares in [0, 1]."""

    time: float  # since the epoch
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    sessions: int = 0
    kv_usage: float = 0.0
    cache_hit_rate: float = 0.0
    output_tokens_per_second: float = 0.0
    silence: float = 0.0
    is_draining: bool = False
    draft_tokens_per_second: float = 0.0
    accepted_draft_tokens_per_second: float = 0.0

    def differs_from(self, other: Utilization) -> bool:
        """Whether anything but the time has changed."""
        return replace(self, time=other.time) != other


@dataclass(frozen=True, slots=True)
class _Counters:
    at: float
    cached: int = 0
    prefilled: int = 0
    outputs: int = 0
    drafted: int = 0
    accepted: int = 0

    def __sub__(self, earlier: _Counters) -> _Counters:
        return _Counters(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(_Counters)))


class UtilizationMeter:
    """On the event loop's thread. Rates need a sample() about once a second while calls run; the watchdog calls it."""

    def __init__(
        self,
        numbers: Callable[[], EngineStats | None],
        is_draining: Callable[[], bool],
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._numbers = numbers
        self._is_draining = is_draining
        self._clock = clock
        self._wall = wall
        self._samples: deque[_Counters] = deque([_Counters(clock())])

    def snapshot(self) -> Utilization:
        """The load now."""
        numbers = self._numbers()
        if numbers is None:
            return Utilization(self._wall(), is_draining=self._is_draining())
        now = _counters(self._clock(), numbers)
        prompts, outputs = self._since(now, CACHE_WINDOW), self._since(now, OUTPUT_WINDOW)
        seconds = max(outputs.at, SAMPLE_SECONDS)
        return Utilization(
            time=self._wall(),
            running=numbers.running,
            waiting=numbers.waiting,
            waiting_tokens=numbers.waiting_tokens,
            sessions=numbers.sessions,
            kv_usage=kv_usage(numbers),
            cache_hit_rate=prompts.cached / (prompts.cached + prompts.prefilled) if prompts.cached else 0.0,
            output_tokens_per_second=outputs.outputs / seconds,
            silence=numbers.silence_ns * NS,
            is_draining=self._is_draining(),
            draft_tokens_per_second=outputs.drafted / seconds,
            accepted_draft_tokens_per_second=outputs.accepted / seconds,
        )

    def sample(self) -> None:
        """Keeps the counters for the windows."""
        numbers = self._numbers()
        now = self._clock()
        if numbers is not None and now - self._samples[-1].at >= SAMPLE_SECONDS:
            self._samples.append(_counters(now, numbers))
        # The last sample before the window is kept: rates begin there.
        while len(self._samples) > 1 and self._samples[1].at <= now - CACHE_WINDOW:
            self._samples.popleft()

    async def watch(self, min_interval: float) -> AsyncIterator[Utilization]:
        """The load now, then after every change, at most once in `min_interval` seconds.

        Nothing is queued: each snapshot is taken when the reader asks for it, so a slow reader skips some.
        """
        last = self.snapshot()
        yield last
        while True:
            await asyncio.sleep(max(min_interval, LEAST_INTERVAL))
            found = self.snapshot()
            if found.differs_from(last):
                last = found
                yield last

    def _since(self, now: _Counters, window: float) -> _Counters:
        """What was counted since the newest sample before the window; `at` is the seconds since then."""
        begin = self._samples[0]
        for sample in self._samples:
            if sample.at > now.at - window:
                break
            begin = sample
        return now - begin


def _counters(at: float, numbers: EngineStats) -> _Counters:
    drafts = numbers.drafts
    return _Counters(
        at,
        numbers.n_cached_tokens,
        numbers.n_prefill_rows,
        numbers.n_outputs,
        drafts.n_drafted,
        drafts.n_accepted,
    )
