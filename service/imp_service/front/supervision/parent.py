"""The parent of engine processes: it has loaded the model, and forks an engine process at each start."""

from __future__ import annotations

import asyncio
import ctypes
import json
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from imp_service.api.waits import doubling_wait
from imp_service.front.supervision.death import Death
from imp_service.telemetry.log import Log

# After so many faults in a row without progress (see Advances), the model in memory is not trusted.
MOST_FAULTS = 2
# A parent that could not fork has loaded its model for nothing. The next one is started after so many seconds, then
# twice as many.
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
# A parent that has loaded its model forks within this time.
LONGEST_FORK = 5.0
PR_SET_CHILD_SUBREAPER = 36
MESSAGE_BYTES = 1 << 12
EVENT = "parent"

# The arguments of a process, for the descriptors that it gets.
EngineCommand = Callable[[int, int], Sequence[str]]
ParentCommand = Callable[[int], Sequence[str]]


class Process(Protocol):
    """A started process: a Popen, or one that a parent forked."""

    @property
    def pid(self) -> int:
        """Its number."""

    def poll(self) -> int | None:
        """How it ended, as Popen says it; None: it runs."""

    def wait(self) -> int:
        """Waits until it has ended, and says how."""

    def send_signal(self, sig: int, /) -> None:
        """Sends it a signal, unless it has ended."""


class ForkedProcess:
    """An engine process. Until its parent has forked it, its number and its end are the parent's."""

    def __init__(self, parent: subprocess.Popen[bytes]) -> None:
        self._parent = parent
        self._pid: int | None = None
        self._code: int | None = None
        # It exists, or its parent has become it.
        self.is_started = False

    @property
    def pid(self) -> int:
        """Its number."""
        return self._parent.pid if self._pid is None else self._pid

    def started(self, pid: int | None) -> None:
        """The parent has forked it, and it is a child of this process; None: the parent has become it."""
        self._pid = pid
        self.is_started = True

    def poll(self) -> int | None:
        """How it ended, as Popen says it; None: it runs."""
        return self._parent.poll() if self._pid is None else self._see(self._pid, os.WNOHANG)

    def wait(self) -> int:
        """Waits until it has ended, and says how."""
        code = self._parent.wait() if self._pid is None else self._see(self._pid, 0)
        assert code is not None  # narrows: it has waited
        return code

    def send_signal(self, sig: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _see(self, pid: int, options: int) -> int | None:
        if self._code is None:
            found, status = os.waitpid(pid, options)
            self._code = os.waitstatus_to_exitcode(status) if found else None
        return self._code


class Parent:
    """A process that loads the model and forks. Ends when its connection does. On the event loop's thread."""

    def __init__(self, command: ParentCommand, on_message: Callable[[Parent, dict[str, object]], None]) -> None:
        """Starts it. Raises OSError."""
        self._on_message = on_message
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.process = subprocess.Popen(command(theirs.fileno()), pass_fds=(theirs.fileno(),))
            except BaseException:
                self._control.close()
                raise
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._read)
        # It has loaded the model.
        self.is_ready = False

    def ask(self, listening: int, link: int) -> None:
        """Asks for a fork that gets copies of the descriptors. Raises OSError if the parent has ended."""
        socket.send_fds(self._control, [b"fork"], [listening, link])

    def release(self) -> None:
        """Ends the connection, and with it a parent that waits for a start."""
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()

    def _read(self) -> None:
        try:
            message = self._control.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message:
            self._on_message(self, json.loads(message))
        else:
            self.release()


class Starter:
    """Starts engine processes: a parent forks them, or they are executed. On the event loop's thread."""

    def __init__(self, command: EngineCommand, log: Log, parent_command: ParentCommand | None = None) -> None:
        """Without `parent_command`, and for a while after a parent could not fork, processes are executed."""
        self._command = command
        self._log = log
        self._parent_command = parent_command
        self._parent: Parent | None = None
        # Ended, but maybe not gone: freeing the memory of a large model takes a while.
        self._dropped: list[subprocess.Popen[bytes]] = []
        self._starting: ForkedProcess | None = None
        self._asked_at = 0.0
        self._n_faults = 0
        # Until then no parent is started, since the last ones could not fork.
        self._paused_until = 0.0
        self._n_refused = 0
        if parent_command is not None:
            # A forked engine process becomes a child of this one, as an executed one is.
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    @property
    def pids(self) -> set[int]:
        """Of the processes whose end this object wants to see itself."""
        processes = [*self._dropped, *([] if self._parent is None else [self._parent.process])]
        return {process.pid for process in processes}

    @property
    def is_starting(self) -> bool:
        """A parent loads or forks."""
        return self._starting is not None and not self._starting.is_started

    @property
    def is_late(self) -> bool:
        """A parent that has its model has forked nothing for too long."""
        parent = self._parent
        is_ready = parent is not None and parent.is_ready and self.is_starting
        return is_ready and time.monotonic() - self._asked_at > LONGEST_FORK

    def start(self, listening: int, link: int) -> Process:
        """Starts a process with copies of these descriptors. Raises OSError."""
        self._starting = None
        self.check()
        if self._parent is None:
            if self._parent_command is None or time.monotonic() < self._paused_until:
                return subprocess.Popen(self._command(listening, link), pass_fds=(listening, link))
            self._parent = Parent(self._parent_command, self._hears)
        parent, self._asked_at = self._parent, time.monotonic()
        try:
            parent.ask(listening, link)
        except OSError as error:
            self._drop(f"it cannot be asked: {error.strerror or error}")
            raise
        self._starting = ForkedProcess(parent.process)
        return self._starting

    def died(self, death: Death, *, has_advanced: bool) -> None:
        """An engine process has ended. `has_advanced`: a caller got further since the one before."""
        self._starting = None
        if has_advanced:
            self._n_faults = 0
        self._n_faults += death.may_damage
        if death.signal == signal.SIGBUS:
            self._drop("its memory or its file may be damaged")
        elif self._n_faults >= MOST_FAULTS:
            self._drop(f"{self._n_faults} faults without progress of a caller")

    def check(self) -> None:
        """Sees whether the parent has ended: the next start makes another one, which loads the model again."""
        self._dropped = [process for process in self._dropped if process.poll() is None]
        parent = self._parent
        if parent is not None and (code := parent.process.poll()) is not None:
            self._forget(parent)
            if parent.is_ready:
                self._log.warning(EVENT, message=f"ended: {f'signal {-code}' if code < 0 else f'status {code}'}")

    def close(self) -> None:
        """Ends the parent, if there is one, and waits for it."""
        if self._parent is not None:
            self._end(self._parent)
        for process in self._dropped:
            process.wait()

    def _drop(self, why: str) -> None:
        """Ends the parent, if there is one. The next start makes another one."""
        if self._parent is not None:
            self._log.warning(EVENT, message=f"dropped: {why}")
            self._end(self._parent)

    def _end(self, parent: Parent) -> None:
        parent.process.kill()
        self._dropped.append(parent.process)
        self._forget(parent)

    def _forget(self, parent: Parent) -> None:
        parent.release()
        self._parent = None
        self._n_faults = 0

    def _hears(self, parent: Parent, message: dict[str, object]) -> None:
        if "ready" in message:
            parent.is_ready = True
            self._asked_at = time.monotonic()
            return
        pid, starting = message.get("pid"), self._starting
        if pid is None:  # it becomes the engine process, and so loads the model again
            pause = doubling_wait(FIRST_PAUSE, self._n_refused, LONGEST_PAUSE)
            self._n_refused += 1
            self._paused_until = math.inf if message["is_final"] else time.monotonic() + pause
            self._log.warning(EVENT, message=f"forks no process: {message['refused']}")
            self._forget(parent)
        else:
            self._n_refused = 0
        if starting is not None:
            assert pid is None or isinstance(pid, int)  # narrows: the message is the parent's
            starting.started(pid)
