"""Runs an engine in a process of its own and sends it commands."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.compare_peers.engines.protocol import RefusedError, Task
from imp_service.core.bench.cases import Case
from support.command_line import FOUND_IN, clean_environment
from support.process_numbers import TICKS, stat_fields

SCRIPT = Path(__file__).with_name("serve_engine.py")
SETTLES_WITHIN = 2.0


class EngineProcess:
    """A running engine, made by `engine_process`. `load_seconds` leaves out the imports."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: Path) -> None:
        self.name = name
        self._process = process
        self._errors = errors  # its stderr
        self.load_seconds = float(self._answer())

    def ask(self, do: str, case: Case | None = None) -> Any:
        """Sends a command. Raises RefusedError with the engine's message."""
        assert self._process.stdin is not None  # narrows
        words = {"do": do} if case is None else {"do": do, "case": dataclasses.asdict(case)}
        with contextlib.suppress(BrokenPipeError):  # a missing answer is reported below
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def timed_run(self) -> tuple[float, float]:
        """Runs the prepared case. Returns its seconds, and the CPUs that other processes used meanwhile."""
        started, busy, own = time.monotonic(), busy_seconds(), cpu_seconds(self._process.pid)
        seconds = self.ask("run")
        others = busy_seconds() - busy - (cpu_seconds(self._process.pid) - own)
        share = max(0.0, others) / (time.monotonic() - started)
        settle(self._process.pid)
        return seconds, share

    def _answer(self) -> Any:
        assert self._process.stdout is not None  # narrows
        line = self._process.stdout.readline()
        if not line:
            last = self._errors.read_text(errors="replace").strip().rpartition("\n")[2]
            raise RefusedError(f"its process ended with {self._process.wait()}: {last}")
        answer = json.loads(line)
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        return answer["value"]


@contextlib.contextmanager
def engine_process(name: str, task: Task) -> Iterator[EngineProcess]:
    """Starts an engine for the block. Raises RefusedError if the engine does not load the file."""
    words = json.dumps(dataclasses.asdict(task) | {"path": str(task.path)})
    with tempfile.TemporaryDirectory() as home, (Path(home) / "errors").open("w") as errors:
        # Peers may be on the import path of this process.
        path = os.pathsep.join([str(FOUND_IN), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), name, words],
            env=clean_environment(Path(home)) | {"OMP_PROC_BIND": "true", "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield EngineProcess(name, process, Path(errors.name))
        finally:
            process.kill()
            process.communicate()


def settle(pid: int) -> None:
    """Waits until a process's threads sleep: after their work they spin for a while."""
    tasks, give_up, pause = Path(f"/proc/{pid}/task"), time.monotonic() + SETTLES_WITHIN, threading.Event()
    while time.monotonic() < give_up and any(map(is_running, tasks.iterdir())):
        pause.wait(0.01)


def is_running(task: Path) -> bool:
    """Whether a thread runs, from its folder in /proc. A thread that has ended does not."""
    try:
        return stat_fields(task)[0] == "R"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and of its children that have ended."""
    user, system, of_children, system_of_children = map(int, stat_fields(Path(f"/proc/{pid}"))[11:15])
    return (user + system + of_children + system_of_children) / TICKS


def busy_seconds() -> float:
    """Returns the busy time of all CPUs, including time that the hypervisor took."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS
