"""A worker: a process that does one task at a time for this one, so that a task that takes too much ends only it.

Both pipes carry messages: a line of JSON, and after it as many bytes as its key `body_bytes` says. The worker's first
message says that it has started. It ends by itself after a while without a task, and with its server.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# To start Python and to load the libraries, also on a busy machine. A task has its own limit.
START_SECONDS = 60.0
# A pipe that poll() reports as writable takes this much without blocking.
_PIPE_BYTES = select.PIPE_BUF
_READ_BYTES = 1 << 16
# How a worker ended.
OUT_OF_TIME = (-signal.SIGALRM, -signal.SIGPROF)
# A library aborts if an allocation fails, a full stack faults, and the kernel kills if the machine has no memory.
OUT_OF_MEMORY = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL)
# An idle worker ends with 0. Popen also reports 0 for every end if this process ignores SIGCHLD, as process 1 does.
ENDED = 0


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """A worker's answer to a task."""

    head: Mapping[str, Any]
    body: bytes


class WorkerNotStarted(Exception):
    """The worker did not come as far as its first message. No task is at fault."""


class WorkerProcess:
    """One worker, started when it is needed; callers wait for each other. Any thread may call."""

    def __init__(self, task: str, command: Callable[[], Sequence[str]]) -> None:
        """`task` completes "no process to …"; `command` returns the arguments of Python for a new worker."""
        self._task = task
        self._command = command
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._end_worker: Callable[[], object] = lambda: None
        # The worker's first message. One that ends before that could not start.
        self._greeting: Mapping[str, Any] | None = None
        self.is_closed = False

    def start(self) -> None:
        """Starts the worker, so that it is ready when it is needed. Does not wait for it."""
        with self._lock:
            self._running()

    def greeting(self) -> Mapping[str, Any]:
        """The first message of a worker, which is started if none runs."""
        with self._lock:
            try:
                return self._greet(self._running(), time.monotonic() + START_SECONDS)
            except EOFError:
                raise WorkerNotStarted(f"it ended with status {self._end()} before it was ready") from None

    def ask(self, head: Mapping[str, object], body: bytes = b"", *, wall_seconds: float) -> WorkerAnswer | int:
        """The worker's answer, or the status with which it ended.

        Returns after that time and the time of a start, however slow the machine is; after twice as long if a second
        worker tries.
        """
        with self._lock:
            answer = self._ask(_message(head, body), wall_seconds)
            if not isinstance(answer, WorkerAnswer) and not self.is_closed:
                # The next caller finds one that has started.
                self._running()
            return answer

    def close(self) -> None:
        """Ends the worker. A call of ask() that waits for it returns a status."""
        self.is_closed = True
        worker = self._worker
        if worker is not None:
            # A waiting thread then reads the end of the pipe, and releases the lock.
            worker.kill()
        with self._lock:
            if self._worker is not None:
                self._end()

    def _ask(self, request: bytes, wall_seconds: float) -> WorkerAnswer | int:
        # Normally the worker's own alarm comes first. This limit is for a worker that is stopped, or that never reads.
        end = time.monotonic() + START_SECONDS + wall_seconds
        has_retried = False
        while not self.is_closed:
            worker = self._running()
            try:
                self._greet(worker, end)
                _write(worker, request, end)
                return _read(worker, end)
            except TimeoutError:
                self._end()
                return -signal.SIGALRM
            except (BrokenPipeError, EOFError):
                was_ready = self._greeting is not None
                status = self._end()
                # An idle worker may end just as the request comes, and the kernel may kill one because the machine
                # lacks memory. A second worker then takes the request, never a third: the request may be the cause.
                if self.is_closed or has_retried or status not in (ENDED, -signal.SIGKILL):
                    if self.is_closed or was_ready:
                        return status
                    raise WorkerNotStarted(f"it ended with status {status} before it was ready") from None
                has_retried = True
        return -signal.SIGKILL

    def _greet(self, worker: subprocess.Popen[bytes], end: float) -> Mapping[str, Any]:
        if self._greeting is None:
            try:
                self._greeting = _read(worker, end).head
            except TimeoutError:
                self._end()
                raise WorkerNotStarted(f"it was not ready within {START_SECONDS:g} s") from None
        return self._greeting

    def _running(self) -> subprocess.Popen[bytes]:
        worker = self._worker
        if worker is not None and worker.poll() is not None:
            # It ended because it was idle.
            self._end()
            worker = None
        if worker is None:
            worker = self._start()
            self._worker, self._greeting = worker, None
            # Ends the worker even if nobody calls close().
            self._end_worker = weakref.finalize(self, _end, worker)
        return worker

    def _start(self) -> subprocess.Popen[bytes]:
        """Raises MemoryError if the system refuses a process."""
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", *self._command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
            raise MemoryError(f"no process to {self._task}: {error.strerror}") from error

    def _end(self) -> int:
        worker, self._worker = self._worker, None
        self._end_worker()
        assert worker is not None  # narrows
        return worker.wait()


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


def _message(head: Mapping[str, object], body: bytes) -> bytes:
    return json.dumps({**head, "body_bytes": len(body)}).encode() + b"\n" + body


def _write(worker: subprocess.Popen[bytes], request: bytes, end: float) -> None:
    assert worker.stdin is not None  # narrows
    rest = memoryview(request)
    while rest:
        _wait(worker.stdin.fileno(), select.POLLOUT, end)
        rest = rest[os.write(worker.stdin.fileno(), rest[:_PIPE_BYTES]) :]


def _read(worker: subprocess.Popen[bytes], end: float) -> WorkerAnswer:
    received = bytearray()
    while (n_head := received.find(b"\n") + 1) == 0:
        received += _part(worker, end)
    head = json.loads(received[:n_head])
    assert isinstance(head, dict)  # narrows
    while len(received) - n_head < head.get("body_bytes", 0):
        received += _part(worker, end)
    return WorkerAnswer(head, bytes(memoryview(received)[n_head:]))


def _part(worker: subprocess.Popen[bytes], end: float) -> bytes:
    assert worker.stdout is not None  # narrows
    _wait(worker.stdout.fileno(), select.POLLIN, end)
    part = os.read(worker.stdout.fileno(), _READ_BYTES)
    if not part:
        raise EOFError
    return part


def _wait(descriptor: int, event: int, end: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(end - time.monotonic(), 0) * 1000):
        raise TimeoutError
