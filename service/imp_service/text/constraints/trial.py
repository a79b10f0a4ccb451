"""Compiles each constraint on trial in a separate process with limits of time and memory.

The server itself compiles only constraints that stayed within these limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from imp_service.process.worker_process import (
    ENDED,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    WorkerAnswer,
    WorkerNotStarted,
    WorkerProcess,
)
from imp_service.text.errors import FieldInvalid, NativePanic
from imp_service.text.limits import MIB

# A machine that is busy may give the worker half of a processor.
_WALL_FACTOR = 2
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
        self._worker = WorkerProcess("compile constraints in", partial(_command, compile_bytes))

    def start(self) -> None:
        """Starts the worker, so that it is ready when it is needed. Does not wait for it."""
        self._worker.start()

    def compile(self, path: str, grammar: str, limits: Mapping[str, object]) -> Trial:
        """Raises `FieldInvalid` if compiling exceeds its limit of processor time or memory.

        Returns within twice the time limit, however slow the machine is; within four times if a second worker tries.
        """
        cpu_seconds = self._compile_ms / 1000
        wall_seconds = _WALL_FACTOR * cpu_seconds
        request = {"grammar": grammar, "limits": limits, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds}
        try:
            answer = self._worker.ask(request, wall_seconds=wall_seconds)
        except WorkerNotStarted as error:
            message = f"the process that compiles constraints does not start: {error}"
            raise NativePanic("llguidance", message) from None
        if isinstance(answer, WorkerAnswer):
            return Trial(str(answer.head["error"]), int(answer.head["n_bytes"]))
        if self._worker.is_closed:
            raise FieldInvalid(path, "not compiled: the model is closed")
        if answer in OUT_OF_TIME:
            raise FieldInvalid(path, f"takes more than {self._compile_ms} ms to compile")
        if answer in OUT_OF_MEMORY:
            raise FieldInvalid(path, f"takes more than {self._compile_bytes // MIB} MiB to compile")
        if answer == ENDED:
            bounds = f"{self._compile_ms} ms or {self._compile_bytes // MIB} MiB"
            raise FieldInvalid(path, f"takes more than {bounds} to compile")
        raise NativePanic("llguidance", f"the process that compiles constraints ended with status {answer}")

    def close(self) -> None:
        """Ends the worker. A call of compile() that waits for it raises `FieldInvalid`."""
        self._worker.close()


def _command(n_bytes: int) -> Sequence[str]:
    import llguidance

    return (_WORKER, str(Path(llguidance.__file__).parent.parent), str(n_bytes))
