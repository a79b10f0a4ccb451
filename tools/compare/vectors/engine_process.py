"""Runs an engine of vectors in a process of its own. `python engine_process.py NAME FOLDER SCRATCH THREADS` serves it.

A command is a line of JSON: `embed` returns vectors, `time` the seconds of a call, the median of a few.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    # In place of this folder.
    sys.path[:1] = [str(TOOLS), str(TOOLS.parent / "tests")]

from compare.refused import RefusedError  # noqa: E402
from compare.vectors.engines import ENGINES, VectorEngine  # noqa: E402

# A call of one text takes milliseconds.
SECONDS, MOST_CALLS = 1.0, 200


class EngineProcess:
    """A running engine, made by `engine_process`."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: Path) -> None:
        self.name, self.pid = name, process.pid
        self._process, self._errors = process, errors
        self._answer()

    def ask(self, do: str, texts: list[str]) -> Any:
        """Raises RefusedError with the engine's message."""
        assert self._process.stdin is not None  # narrows
        with contextlib.suppress(BrokenPipeError):  # a missing answer is reported below
            self._process.stdin.write(json.dumps({"do": do, "texts": texts}) + "\n")
            self._process.stdin.flush()
        return self._answer()

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
def engine_process(name: str, model: Path, scratch: Path, threads: int) -> Iterator[EngineProcess]:
    """Starts an engine for the block. Raises RefusedError if it does not load the model."""
    with tempfile.TemporaryDirectory() as home, (Path(home) / "errors").open("w") as errors:
        words = [sys.executable, __file__, name, str(model.resolve()), str(scratch), str(threads)]
        threads_of_libraries = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
        process = subprocess.Popen(
            words,
            env=os.environ | threads_of_libraries,
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


def seconds_of(engine: VectorEngine, texts: list[str]) -> float:
    """Returns the median time of a call."""
    ends, taken = time.perf_counter() + SECONDS, list[float]()
    while not taken or (time.perf_counter() < ends and len(taken) < MOST_CALLS):
        started = time.perf_counter()
        engine.embed(texts)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def serve() -> None:
    """Runs until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name, model, scratch, threads = sys.argv[1:]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    try:
        engine = ENGINES[name](Path(model), Path(scratch), int(threads))
    except RefusedError as refusal:
        print(json.dumps({"refused": str(refusal)}), file=answers)
        return
    print(json.dumps({"value": None}), file=answers)
    for line in sys.stdin:
        words = json.loads(line)
        if words["do"] == "time":
            value: Any = seconds_of(engine, words["texts"])
        else:
            value = [[float(number) for number in vector] for vector in engine.embed(words["texts"])]
        print(json.dumps({"value": value}), file=answers)


if __name__ == "__main__":
    serve()
