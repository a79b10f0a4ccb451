"""One event loop in a thread for every in-process server of a test run, on a clock that a test can set forward."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from support.run.loop_holds import LOOP_THREAD, watch_holds
from support.run.patience import HANGS_AFTER

T = TypeVar("T")


class JumpingClock:
    """The real clock plus an offset that tests increase, so that they need not wait for long timers.

    A test that counts on less time passing than it may take stops the clock; then only its jumps move it.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._stopped: tuple[float, float] | None = None  # monotonic seconds, seconds since 1970

    def __call__(self) -> float:
        """Returns monotonic seconds."""
        stopped = self._stopped  # another thread may change it
        return time.monotonic() + self._ahead if stopped is None else stopped[0]

    def wall(self) -> float:
        """Returns seconds since 1970; jumps count here too."""
        stopped = self._stopped
        return time.time() + self._ahead if stopped is None else stopped[1]

    def jump(self, seconds: float) -> None:
        """Sets the clock forward. Call it on the loop's thread, between timers."""
        assert seconds >= 0
        self._ahead += seconds
        if self._stopped is not None:
            self._stopped = self._stopped[0] + seconds, self._stopped[1] + seconds

    def stop(self) -> None:
        """Stops the clock at the next whole second, so that sums of whole seconds are exact."""
        now, wall = self(), self.wall()
        second = float(math.ceil(now))
        self._stopped = second, wall + second - now
        self._ahead += second - now

    def go(self) -> None:
        """Lets the clock run again; it shows no earlier time than before."""
        self._stopped = None


class LoopThread:
    """An event loop in a thread. It uses the clock, so a jump makes asyncio's timers due.

    All servers share one, because grpc.aio does not support two loops in one process.
    """

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.loop = asyncio.new_event_loop()
        self.loop.time = self.clock  # type: ignore[method-assign]
        watch_holds()
        self._thread = threading.Thread(target=self.loop.run_forever, name=LOOP_THREAD, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine that runs on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANGS_AFTER)

    def call(self, function: Callable[[], T]) -> T:
        """Returns the result of a function called on the loop's thread."""

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
    """Returns the loop thread of this process, started at the first call; a daemon thread."""
    if not _STARTED:
        _STARTED.append(LoopThread())
    return _STARTED[0]
