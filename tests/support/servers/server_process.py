"""Runs `imp serve` as a separate process: starts it, waits for it, calls it, stops it and reads its stderr."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from imp_service.pb import inference_pb2_grpc
from support.calls.checked_channel import checked
from support.machine.command_line import clean_environment
from support.machine.traces import HOOK, Configured, acts_inside
from support.run.patience import HANGS_AFTER
from support.servers.served_models import built_in
from support.servers.server_checks import CanaryLoop


class ServerProcess:
    """One server process. `folder` is its home and holds its ready file and its stderr."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        settings: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        stderr: int | None = None,
        inside: Sequence[str] = (),
        is_traced: bool = True,
        listen: Sequence[str] = ("--listen", "127.0.0.1:0"),
    ) -> None:
        """Starts the server. `settings` are texts of --set; `stderr` is a descriptor in place of the file.

        `inside` is a command prefix such as setpriv. A file records what the server opens and connects to, unless
        `is_traced` is false or `inside` removes the environment variables.
        """
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.stderr_file = folder / "stderr.txt"
        sets = [word for setting in ("device.threads=1", *settings) for word in ("--set", setting)]
        listen = () if "--listen" in arguments else listen
        ready = ["--ready-file", str(self.ready_file)]
        self.ready_file.unlink(missing_ok=True)
        given = environment or {}
        self.configured = Configured(folder, self.ready_file, [*arguments, *settings, *given.values()])
        self._trace = folder / f"trace-{time.monotonic_ns()}.jsonl" if is_traced else None
        variables = {**clean_environment(folder), **given}
        if self._trace is not None:
            variables |= {
                "TRACED_TO": str(self._trace),
                "PYTHONPATH": os.pathsep.join([str(HOOK), variables["PYTHONPATH"]]),
            }
        with self.stderr_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [*inside, sys.executable, "-P", "-m", "imp_service", "serve", *ready, *listen, *sets, *arguments],
                env=variables,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors if stderr is None else stderr,
            )
        self._facts: dict[str, Any] | None = None

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self.process.pid

    @property
    def stderr(self) -> str:
        """The stderr of the server so far."""
        return self.stderr_file.read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self) -> dict[str, Any]:
        """Returns the content of the ready file; fails if the server ends first."""
        give_up = time.monotonic() + HANGS_AFTER
        while self._facts is None:
            if self.ready_file.exists():
                self._facts = json.loads(self.ready_file.read_text())
                break
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.stderr}"
            assert time.monotonic() < give_up, f"not ready: {self.stderr}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.005)
        return self._facts

    @property
    def address(self) -> str:
        """The address of the first data listener."""
        addresses: list[str] = self.wait_until_ready()["grpc"]
        return addresses[0]

    @contextlib.contextmanager
    def connection(self, *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
        """Yields a new connection that checks every call; closes it with the block."""
        with grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1), *options]) as raw:
            yield checked(raw)

    @contextlib.contextmanager
    def inference(self) -> Iterator[inference_pb2_grpc.InferenceServiceStub]:
        """Yields a stub on a new connection."""
        with self.connection() as channel:
            yield inference_pb2_grpc.InferenceServiceStub(channel)

    @contextlib.contextmanager
    def canary(self) -> Iterator[CanaryLoop]:
        """Generates the canary again and again during the block, on its own connection; fails if a token is wrong.

        The server serves the built-in model.
        """
        with self.connection() as channel:
            canary = CanaryLoop(built_in(), channel)
            try:
                canary.wait_for(1)
                yield canary
            finally:
                canary.stop()
            assert canary.problems == []

    def run_canary(self) -> None:
        """Generates the canary once and compares its tokens (G2, G10)."""
        with self.connection() as channel:
            canary = CanaryLoop(built_in(), channel)
            canary.stop()
            assert canary.problems == []

    def signal(self, number: int) -> None:
        """Sends the server a signal."""
        os.kill(self.pid, number)

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        """Returns the complete lines of the log about this event so far."""
        return [line for line in self._log_lines() if line["event"] == event]

    def calls(self, method: str) -> list[dict[str, Any]]:
        """Returns the log lines of the calls of this method that have ended."""
        return [line for line in self._log_lines() if line.get("method", "").endswith(method)]

    def _log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{") and line.endswith("}")]

    def wait_for_lines(self, event: str, n: int) -> list[dict[str, Any]]:
        """Returns the lines about this event once there are `n`; fails if the server ends first."""
        return self._wait_for(lambda: self.log_lines(event), n, event)

    def wait_for_calls(self, method: str, n: int) -> list[dict[str, Any]]:
        """Returns the lines of the calls of this method once `n` have ended; fails if the server ends first."""
        return self._wait_for(lambda: self.calls(method), n, method)

    def _wait_for(self, find: Callable[[], list[dict[str, Any]]], n: int, what: str) -> list[dict[str, Any]]:
        give_up = time.monotonic() + HANGS_AFTER
        while len(lines := find()) < n:
            assert self.process.poll() is None and time.monotonic() < give_up, f"no {n} lines {what}: {self.stderr}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.005)
        return lines

    def wait_for_end(self) -> int:
        """Waits for the end; returns the exit status, negative for a signal."""
        descriptor = os.pidfd_open(self.pid) if self.process.poll() is None else None
        if descriptor is not None:
            try:
                ended, _, _ = select.select([descriptor], [], [], HANGS_AFTER)
                assert ended, f"does not end: {self.stderr}"
            finally:
                os.close(descriptor)
        return self.process.wait(HANGS_AFTER)

    def terminate(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_for_end()

    def trace_problems(self) -> list[str]:
        """Returns the accesses so far that the configuration does not name (G9)."""
        if self._trace is None or not self._trace.exists():
            return []
        return self.configured.problems_in(acts_inside(self._trace))

    def kill(self) -> None:
        """Kills the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANGS_AFTER)


@contextlib.contextmanager
def server_process(folder: Path, *arguments: str, **options: Any) -> Iterator[ServerProcess]:
    """Yields a server process and kills it with the block; fails if it accessed anything beyond its configuration."""
    server = ServerProcess(folder, *arguments, **options)
    try:
        yield server
    finally:
        server.kill()
    assert server.trace_problems() == []


def start_to_its_end(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs an `imp serve` whose start fails, and returns its status and output."""
    listen = [] if "--listen" in words else ["--listen", "127.0.0.1:0"]
    return subprocess.run(
        [sys.executable, "-P", "-m", "imp_service", "serve", *listen, *words],
        env=clean_environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
