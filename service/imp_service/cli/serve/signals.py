"""Signals of a server: SIGHUP reloads, the first SIGTERM or SIGINT drains, the second ends the process."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT)
# Ignored: SIGPIPE, and signals that other servers use. SIGHUP only until the server can reload.
HARMLESS = (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class StopSignals:
    """Create it first. Process 1 of a container has no default signal handlers, so this handles all of them."""

    def __init__(self, before_exit: Callable[[], None], *, has_front: bool = False) -> None:
        """`before_exit` is called when a signal ends the process at once.

        `has_front`: this process is the child of a front. Ctrl-C signals both, and the front decides what it means.
        A service manager may send SIGTERM to both, and the front passes its own on: so a second one ends nothing.
        """
        self._before_exit = before_exit
        self._has_front = has_front
        self._stop: Callable[[str], object] | None = None
        for number in HARMLESS:
            signal.signal(number, signal.SIG_IGN)
        self._stops: tuple[signal.Signals, ...] = STOPS
        if has_front:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._stops = (signal.SIGTERM,)
        for number in self._stops:
            signal.signal(number, self._handle)
        if os.getpid() == 1:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # process 1 inherits orphaned processes

    def call(self, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None], reload: Callable[[], None]) -> None:
        """From now on the first SIGTERM or SIGINT calls `stop` with its name on the loop, and SIGHUP calls `reload`."""
        self._stop = lambda name: loop.call_soon_threadsafe(stop, name)
        for number in self._stops:
            # This makes a signal wake the loop. The handler itself needs no loop, so it can end one that hangs.
            loop.add_signal_handler(number, _ignore)
            signal.signal(number, self._handle)
        # Not by the loop: it would restore the default when it closes, and SIGHUP would end the process.
        signal.signal(signal.SIGHUP, lambda *_: _on_loop(loop, reload))

    def _handle(self, number: int, _: FrameType | None) -> None:
        stop = self._stop
        if stop is None:
            self._before_exit()
            os._exit(128 + number)
        self._stop = _stops_already if self._has_front else None
        stop(signal.Signals(number).name)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _stops_already(_: str) -> None:
    """A signal has called `stop` before."""


def _ignore() -> None:
    """The loop only has to wake up."""
