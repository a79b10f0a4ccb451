"""The signals of a server: the first to stop begins a drain, the second ends at once, others change nothing."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT)
# A terminal that closed, a reader that left, habits of other servers.
HARMLESS = (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class StopSignals:
    """Made before anything takes time. For process 1 of a container no signal has a default: all are handled here."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] | None = None
        for number in HARMLESS:
            signal.signal(number, signal.SIG_IGN)
        for number in STOPS:
            signal.signal(number, self._handle)
        if os.getpid() == 1:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what others start in the container ends as our child

    def call(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """From now on the first signal calls `stop` on the loop."""
        self._stop = lambda: loop.call_soon_threadsafe(stop)
        for number in STOPS:
            # For the descriptor that wakes a waiting loop. Our own handler needs no loop: it also ends one that hangs.
            loop.add_signal_handler(number, _nothing)
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        stop, self._stop = self._stop, None
        if stop is None:
            os._exit(128 + number)
        stop()


def _nothing() -> None:
    """What the loop does at a signal."""
