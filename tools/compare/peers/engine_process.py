"""Runs an engine in a process of its own and sends it commands."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare.outcome import Run
from compare.peers.engines.protocol import Task
from compare.processes import OtherProcesses, settle
from compare.refused import RefusedError
from imp_service.core.bench.cases import Case
from support.machine.command_line import FOUND_IN, clean_environment

SCRIPT = Path(__file__).with_name("serve_engine.py")


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

    def prepare(self, case: Case) -> None:
        self.ask("prepare", case)
        self.run(case)  # warms up

    def run(self, _: Case) -> Run:
        others = OtherProcesses(self._process.pid)
        seconds = self.ask("run")
        found = Run(seconds, others.cpus())
        settle(self._process.pid)
        return found

    def release(self) -> None:
        self.ask("release")

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
    engine, *settings = name.split()
    words = json.dumps(dataclasses.asdict(task) | {"path": str(task.path), "settings": settings})
    with tempfile.TemporaryDirectory() as home, (Path(home) / "errors").open("w") as errors:
        # Peers may be on the import path of this process.
        path = os.pathsep.join([str(FOUND_IN), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), engine, words],
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
