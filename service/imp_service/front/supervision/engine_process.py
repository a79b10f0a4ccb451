"""An engine process: an `imp serve` that this process has started, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from imp_service.config.address import ABSTRACT
from imp_service.config.machine import n_killed_for_memory
from imp_service.front.supervision.advances import PROGRESS
from imp_service.front.supervision.death import Death
from imp_service.front.supervision.parent import Process

BACKLOG = 128
READ_BYTES = 1 << 16
# Of so many looks at the kernel's counter, a second apart, the oldest is compared. To end a process with much memory
# takes the kernel as long.
MEMORY_LOOKS = 10


Start = Callable[[int, int], Process]
Hears = Callable[[Mapping[str, Any]], None]


class EngineProcess:
    """On the event loop's thread, which must be the main thread: the kernel tells the child when this thread ends.

    The child gets a listening socket without a name in the file system. This process keeps no copy of it, so the
    address refuses connections as soon as the child has ended. A second socket connects both: the child reads its end
    of file when this process ends. It writes lines of JSON: one once it serves, and others about its progress.
    """

    def __init__(self, start: Start, on_serving: Hears, on_progress: Hears) -> None:
        """Starts it: `start` gives it copies of the descriptors of both sockets. Raises OSError."""
        self._on_serving, self._on_progress = on_serving, on_progress
        self._received = b""
        self.ended: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.has_served = False
        # Why it was ended, if it hung or was killed for memory.
        self.why = ""
        # How many processes the kernel had killed for memory in the last seconds.
        self._n_killed = deque([n_killed_for_memory()], maxlen=MEMORY_LOOKS)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("")  # the kernel chooses a name
            listening.listen(BACKLOG)
            # For asyncio. It begins with NUL.
            self.path: str = listening.getsockname().decode()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    self._process = start(listening.fileno(), theirs.fileno())
                except BaseException:
                    ours.close()
                    raise
        self._link = ours
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    @property
    def address(self) -> str:
        """The address of its HTTP."""
        return f"{ABSTRACT}{self.path[1:]}"

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        self._process.send_signal(number)

    def check(self) -> None:
        """Sees whether it has ended."""
        code = self._process.poll()
        if code is None or self.ended.done():
            return
        while self._read():  # what it wrote just before its end counts
            pass
        self._close_link()
        by_watchdog = bool(self.why)
        # The counter tells such a kill from another one's SIGKILL.
        for_memory = not by_watchdog and code == -signal.SIGKILL and n_killed_for_memory() > self._n_killed[0]
        if for_memory:
            self.why = "the kernel killed it for memory"
        ended = {"signal": -code} if code < 0 else {"status": code}
        self.ended.set_result(Death(**ended, by_watchdog=by_watchdog, for_memory=for_memory))

    def look_at_memory(self) -> None:
        """Call it every second: later, a kill of another process for memory is not taken for the cause of an end."""
        self._n_killed.append(n_killed_for_memory())

    async def end(self, why: str) -> None:
        """Ends it because it hangs: it may say where, and is killed after a second."""
        self.why = why
        self.signal(signal.SIGABRT)
        await asyncio.wait((self.ended,), timeout=1.0)
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills it if it still runs."""
        self._close_link()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _read(self) -> bool:
        """Takes what it has written. Whether there may be more of it."""
        try:
            part = self._link.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if not part:
            self._close_link()
            return False
        *lines, self._received = (self._received + part).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        return True

    def _hear(self, message: Mapping[str, Any]) -> None:
        if PROGRESS in message:
            self._on_progress(message[PROGRESS])
        else:
            self.has_served = True
            self._on_serving(message)

    def _close_link(self) -> None:
        if self._link.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self._link.close()


def reap_orphans(own: Collection[int]) -> None:
    """Process 1 of a container, and a front with a parent, inherit processes. Waits for those that have ended.

    `own` are the children of which somebody else wants to know how they ended.
    """
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in {int(word) for word in task.read_text().split()}.difference(own):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
