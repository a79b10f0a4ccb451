"""One event loop in a thread for every in-process server of a test run, on a clock that a test can set forward."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from support.loop_holds import LOOP_THREAD, watch_holds
from support.patience import HANGS_AFTER

T = TypeVar("T")


class JumpingClock:
    """The real clock plus an offset that tests increase, so that they need not wait for long timers."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return time.monotonic() + self._ahead

    def wall(self) -> float:
        """Seconds since 1970, set forward with the rest."""
        return time.time() + self._ahead

    def jump(self, seconds: float) -> None:
        """Sets the clock forward; on the loop's thread, so that no timer is half way."""
        assert seconds >= 0
        self._ahead += seconds


class LoopThread:
    """An event loop in a thread. It uses the clock, so that a jump makes timers of asyncio due.

    One for all servers, since grpc.aio may not be used from two loops of one process.
    """

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.loop = asyncio.new_event_loop()
        self.loop.time = self.clock  # type: ignore[method-assign]
        watch_holds()
        self._thread = threading.Thread(target=self.loop.run_forever, name=LOOP_THREAD, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANGS_AFTER)

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function called on the loop's thread."""

        async def called() -> T:
            return function()

        return self.run(called())

    def jump(self, seconds: float) -> None:
        """Sets the clock forward, and returns when every timer that came due by it has been called."""
        self.call(lambda: self.clock.jump(seconds))

        async def twice() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.run(twice())


_STARTED: list[LoopThread] = []


def loop_thread() -> LoopThread:
    """The loop thread of this process, started at the first call; a daemon thread."""
    if not _STARTED:
        _STARTED.append(LoopThread())
    return _STARTED[0]
