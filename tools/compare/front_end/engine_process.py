"""Runs the measured server in a process of its own, on a core of its own if requested."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER

SCRIPT = Path(__file__).with_name("serve_engine.py")
# The server's own limits must not bound the measurement.
OPEN_BOUNDS = (
    "device.threads=1",
    "kv.bytes=8MiB",
    'listen.grpc=["127.0.0.1:0"]',
    'listen.http=["127.0.0.1:0"]',
    "scheduler.max_waiting=4096",
    "scheduler.tenant_share=1",
    "connection.max_streams=4096",
    "connection.max_connections=4096",
    "sessions.max=20000",
    "sessions.per_tenant=20000",
    "log.level=warning",
)


@dataclass(frozen=True)
class EngineProcess:
    """A server that is ready."""

    pid: int
    grpc: str
    http: str


@contextlib.contextmanager
def served_engine(engine: str, settings: Sequence[str] = (), cpu: int | None = None) -> Iterator[EngineProcess]:
    """Runs a server for the block. All its threads run on `cpu`, if given."""
    with tempfile.TemporaryDirectory() as folder:
        ready_file = Path(folder) / "ready.json"
        with running(Path(folder), engine, str(ready_file), "any" if cpu is None else str(cpu), *settings) as process:
            facts = json.loads(wait_for_file(ready_file, process))
            yield EngineProcess(process.pid, facts["grpc"][0], facts["http"][0])


@contextlib.contextmanager
def direct_engine(engine: str, settings: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """Runs the engine without a server. It takes a line and answers with a line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), engine, "direct", "any", *settings, **pipes) as process,
    ):
        assert process.stdout.readline() == "ready\n"
        yield process


@contextlib.contextmanager
def running(home: Path, engine: str, ready_file: str, cpu: str, *settings: str, **pipes: Any) -> Iterator[Any]:
    """Runs the process for the block."""
    command = [sys.executable, str(SCRIPT), engine, ready_file, cpu, *OPEN_BOUNDS, *settings]
    process = subprocess.Popen(command, env=clean_environment(home), **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ask_direct(process: subprocess.Popen[str], n_streams: int, n_tokens: int) -> float:
    """Returns tokens per second of concurrent generations."""
    assert process.stdin is not None and process.stdout is not None  # narrows
    process.stdin.write(f"{n_streams} {n_tokens}\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def wait_for_file(path: Path, process: subprocess.Popen[bytes]) -> str:
    """Waits for a file and returns its content. Fails if the process ends first."""
    give_up = time.monotonic() + HANGS_AFTER
    while not path.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        if time.monotonic() > give_up:
            raise RuntimeError("the server does not get ready")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.001)
    return path.read_text()
