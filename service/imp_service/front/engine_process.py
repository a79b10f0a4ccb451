"""An engine process: an `imp serve` that this process has started, from its start to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Collection, Mapping
from typing import Any

from imp_service.front.parent import Process
from imp_service.front.upstreams import ABSTRACT, Death

BACKLOG = 128
READ_BYTES = 1 << 16

Start = Callable[[int, int], Process]


class EngineProcess:
    """On the event loop's thread, which must be the main thread: the kernel tells the child when this thread ends.

    The child gets a listening socket without a name in the file system. This process keeps no copy of it, so the
    address refuses connections as soon as the child has ended. A second socket connects both: the child reads its end
    of file when this process ends, and writes a line of JSON once it serves.
    """

    def __init__(self, start: Start, on_serving: Callable[[Mapping[str, Any]], None]) -> None:
        """Starts it: `start` gives it copies of the descriptors of both sockets. Raises OSError."""
        self._on_serving = on_serving
        self._received = b""
        self.ended: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.has_served = False
        # Why it was ended, if it hung.
        self.why_hung = ""
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
        self._close_link()
        hung = bool(self.why_hung)
        self.ended.set_result(Death(-code, None, hung) if code < 0 else Death(None, code, hung))

    async def end(self, why: str) -> None:
        """Ends it because it hangs: it may say where, and is killed after a second."""
        self.why_hung = why
        self.signal(signal.SIGABRT)
        await asyncio.wait((self.ended,), timeout=1.0)
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills it if it still runs."""
        self._close_link()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        try:
            part = self._link.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._close_link()
            return
        *lines, self._received = (self._received + part).split(b"\n")
        for line in lines:
            self.has_served = True
            self._on_serving(json.loads(line))

    def _close_link(self) -> None:
        if self._link.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self._link.close()


def reap_orphans(own: Collection[int]) -> None:
    """Process 1 of a container, and a front with a parent, inherit processes. Waits for those that have ended.

    `own` are the children of which somebody else wants to know how they ended.
    """
    try:
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in own:
            os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        return
