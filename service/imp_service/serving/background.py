"""The server's background threads: they run at the lowest priority while it serves and stop with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from imp_service.serving.lifecycle import Lifecycle, Phase

LOWEST_PRIORITY = 19
# A thread stops between two pieces of its work. On a busy machine, or with a slow disk, a piece can take longer.
JOIN_SECONDS = 1.0

# Background work. It gets a function, and calls it between two pieces of work to find out whether to continue.
Work = Callable[[Callable[[], bool]], None]


class BackgroundThreads:
    """Starts threads on the event loop's thread, and joins them when the server stops."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._is_stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        lifecycle.watch(self._enter)

    @property
    def is_running(self) -> bool:
        """Whether a thread is alive.

        The interpreter would wait for it at exit, possibly forever if a disk does not answer.
        """
        return any(thread.is_alive() for thread in self._threads)

    def start(self, name: str, work: Work) -> None:
        """Runs `work` on a thread of this name."""
        # No daemon: at exit Python ends a daemon inside of native code, and that aborts the process.
        thread = threading.Thread(target=self._run, args=(work,), name=name)
        self._threads.append(thread)
        thread.start()

    def _run(self, work: Work) -> None:
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        work(lambda: not self._is_stopping.is_set())

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.STOPPED:
            self._is_stopping.set()
            give_up = time.monotonic() + JOIN_SECONDS
            for thread in self._threads:
                thread.join(max(0.0, give_up - time.monotonic()))
