"""Compiles each constraint on trial in a separate process with limits of time and memory.

The server itself compiles only constraints that stayed within these limits.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imp_service.text.errors import FieldInvalid, NativePanic
from imp_service.text.limits import MIB

# A machine that is busy may give the worker half of a processor.
_WALL_FACTOR = 2
# To start Python and to load the library, also on a busy machine. Compiling has its own limit.
_START_SECONDS = 60.0
# A pipe that poll() reports as writable takes this much without blocking.
_PIPE_BYTES = select.PIPE_BUF
_OUT_OF_TIME = (-signal.SIGALRM, -signal.SIGPROF)
# The library aborts if an allocation fails, a full stack faults, and the kernel kills if the machine has no memory.
_OUT_OF_MEMORY = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL)
# An idle worker ends with 0. Popen also reports 0 for every end if this process ignores SIGCHLD, as process 1 does.
_ENDED = 0
_WORKER = str(Path(__file__).with_name("trial_worker.py"))


@dataclass(frozen=True, slots=True)
class Trial:
    """The worker's result."""

    # The library's error message; empty if the grammar compiles.
    error: str
    # Memory that the compiled grammar takes.
    n_bytes: int


class TrialCompiler:
    """One worker, started when it is needed; callers wait for each other. Any thread may call."""

    def __init__(self, *, compile_ms: int, compile_bytes: int) -> None:
        self._compile_ms = compile_ms
        self._compile_bytes = compile_bytes
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._end_worker: Callable[[], object] = lambda: None
        # The worker has reported that it takes requests. One that ends before that could not start.
        self._is_ready = False
        self._is_closed = False

    def start(self) -> None:
        """Starts the worker, so that it is ready when it is needed. Does not wait for it."""
        with self._lock:
            self._running()

    def compile(self, path: str, grammar: str, limits: Mapping[str, object]) -> Trial:
        """Raises `FieldInvalid` if compiling exceeds its limit of processor time or memory.

        Returns within twice the time limit, however slow the machine is; within four times if a second worker tries.
        """
        cpu_seconds = self._compile_ms / 1000
        wall_seconds = _WALL_FACTOR * cpu_seconds
        request = {"grammar": grammar, "limits": limits, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds}
        with self._lock:
            reply = self._ask(json.dumps(request).encode() + b"\n", wall_seconds)
            if isinstance(reply, dict):
                return Trial(str(reply["error"]), int(reply["n_bytes"]))
            if not self._is_closed:
                # The next caller finds one that has started.
                self._running()
        if self._is_closed:
            raise FieldInvalid(path, "not compiled: the model is closed")
        if reply in _OUT_OF_TIME:
            raise FieldInvalid(path, f"takes more than {self._compile_ms} ms to compile")
        if reply in _OUT_OF_MEMORY:
            raise FieldInvalid(path, f"takes more than {self._compile_bytes // MIB} MiB to compile")
        if reply == _ENDED:
            bounds = f"{self._compile_ms} ms or {self._compile_bytes // MIB} MiB"
            raise FieldInvalid(path, f"takes more than {bounds} to compile")
        raise NativePanic("llguidance", f"the process that compiles constraints ended with status {reply}")

    def close(self) -> None:
        """Ends the worker. A call of compile() that waits for it raises `FieldInvalid`."""
        self._is_closed = True
        worker = self._worker
        if worker is not None:
            # A waiting thread then reads the end of the pipe, and releases the lock.
            worker.kill()
        with self._lock:
            if self._worker is not None:
                self._end()

    def _ask(self, request: bytes, wall_seconds: float) -> dict[str, Any] | int:
        """The worker's answer, or the status with which it ended."""
        # Normally the worker's own alarm comes first. This limit is for a worker that is stopped, or that never reads.
        end = time.monotonic() + _START_SECONDS + wall_seconds
        has_retried = False
        while not self._is_closed:
            worker = self._running()
            try:
                if not self._is_ready:
                    _read(worker, end)
                    self._is_ready = True
                _write(worker, request, end)
                return _read(worker, end)
            except TimeoutError:
                was_ready = self._is_ready
                self._end()
                if not was_ready:
                    raise _not_started(f"it was not ready within {_START_SECONDS:g} s") from None
                return -signal.SIGALRM
            except (BrokenPipeError, EOFError):
                was_ready = self._is_ready
                status = self._end()
                # An idle worker may end just as the request comes, and the kernel may kill one because the machine
                # lacks memory. A second worker then takes the request, never a third: the request may be the cause.
                if self._is_closed or has_retried or status not in (_ENDED, -signal.SIGKILL):
                    if self._is_closed or was_ready:
                        return status
                    raise _not_started(f"it ended with status {status} before it was ready") from None
                has_retried = True
        return -signal.SIGKILL

    def _running(self) -> subprocess.Popen[bytes]:
        worker = self._worker
        if worker is not None and worker.poll() is not None:
            # It ended because it was idle.
            self._end()
            worker = None
        if worker is None:
            worker = _start(self._compile_bytes)
            self._worker, self._is_ready = worker, False
            # Ends the worker even if nobody calls close().
            self._end_worker = weakref.finalize(self, _end, worker)
        return worker

    def _end(self) -> int:
        worker, self._worker = self._worker, None
        self._end_worker()
        assert worker is not None  # narrows
        return worker.wait()


def _start(n_bytes: int) -> subprocess.Popen[bytes]:
    """Raises MemoryError if the system refuses a process."""
    import llguidance

    folder = Path(llguidance.__file__).parent.parent
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _WORKER, str(folder), str(n_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.ENOMEM):
            raise
        raise MemoryError(f"no process to compile constraints in: {error.strerror}") from error


def _not_started(why: str) -> NativePanic:
    return NativePanic("llguidance", f"the process that compiles constraints does not start: {why}")


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


def _write(worker: subprocess.Popen[bytes], request: bytes, end: float) -> None:
    assert worker.stdin is not None  # narrows
    rest = memoryview(request)
    while rest:
        _wait(worker.stdin.fileno(), select.POLLOUT, end)
        rest = rest[os.write(worker.stdin.fileno(), rest[:_PIPE_BYTES]) :]


def _read(worker: subprocess.Popen[bytes], end: float) -> dict[str, Any]:
    assert worker.stdout is not None  # narrows
    reply = b""
    while not reply.endswith(b"\n"):
        _wait(worker.stdout.fileno(), select.POLLIN, end)
        part = os.read(worker.stdout.fileno(), _PIPE_BYTES)
        if not part:
            raise EOFError
        reply += part
    answer = json.loads(reply)
    assert isinstance(answer, dict)  # narrows
    return answer


def _wait(descriptor: int, event: int, end: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(end - time.monotonic(), 0) * 1000):
        raise TimeoutError
