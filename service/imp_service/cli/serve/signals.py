"""The signals of a server: SIGHUP reloads, the first to stop begins a drain, the second ends at once."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT)
# A reader that left, and signals that other servers use. SIGHUP is ignored until the server can reload.
HARMLESS = (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class StopSignals:
    """Made before anything takes time. For process 1 of a container no signal has a default: all are handled here."""

    def __init__(self, before_exit: Callable[[], None]) -> None:
        """`before_exit` is called where a signal ends the process at once."""
        self._before_exit = before_exit
        self._stop: Callable[[str], object] | None = None
        for number in HARMLESS:
            signal.signal(number, signal.SIG_IGN)
        for number in STOPS:
            signal.signal(number, self._handle)
        if os.getpid() == 1:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what others start in the container ends as our child

    def call(self, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None], reload: Callable[[], None]) -> None:
        """From now on the first signal to stop calls `stop` with its name on the loop, and each SIGHUP `reload`."""
        self._stop = lambda name: loop.call_soon_threadsafe(stop, name)
        for number in STOPS:
            # For the descriptor that wakes a waiting loop. Our own handler needs no loop: it also ends one that hangs.
            loop.add_signal_handler(number, _nothing)
            signal.signal(number, self._handle)
        # Not given to the loop, which would leave the default behind when it closes: SIGHUP would end the process.
        signal.signal(signal.SIGHUP, lambda *_: _on_loop(loop, reload))

    def _handle(self, number: int, _: FrameType | None) -> None:
        stop, self._stop = self._stop, None
        if stop is None:
            self._before_exit()
            os._exit(128 + number)
        stop(signal.Signals(number).name)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _nothing() -> None:
    """What the loop does at a signal."""
