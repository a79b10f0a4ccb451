"""A build of llama.cpp or of a fork, such as ik_llama.cpp, through its `llama-bench`: it needs no Python package.

Each run is a process of its own. Its time is the one that llama-bench measures, after a warm-up.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess

from compare.peers.engines.protocol import Task
from compare.refused import RefusedError
from imp_service.core.bench.cases import Case

NS = 1e-9


class LlamaBenchEngine:
    """With the default settings of llama-bench, but for the threads. It generates one sequence from nothing."""

    def __init__(self, task: Task) -> None:
        if task.llama_bench is None:
            raise RefusedError("--llama-bench names no binary")
        if not os.access(task.llama_bench, os.X_OK):
            raise RefusedError(f"--llama-bench: {task.llama_bench} cannot be executed")
        self._task = task

    def note(self) -> str:
        """Returns what differs in the start."""
        return "a start is a process of llama-bench, with a warm-up"

    def peak_bytes(self) -> int:
        """Returns the peak resident memory of the greatest run."""
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024

    def prepare(self, case: Case) -> None:
        if case.depth > 0 or case.batch > 1:
            raise RefusedError("llama-bench generates one sequence from nothing")
        # The engines' times of a generation begin after its first token.
        n_tokens = (case.tokens, 0) if case.kind == "prefill" else (0, case.tokens - 1)
        self._sizes = ["-p", str(n_tokens[0]), "-n", str(n_tokens[1])]

    def run(self) -> float:
        words = ["-m", str(self._task.path), "-t", str(self._task.threads), "-r", "1", "-o", "json", *self._sizes]
        ran = subprocess.run(
            [str(self._task.llama_bench), *words], capture_output=True, text=True, errors="replace", check=False
        )
        if ran.returncode != 0:
            raise RefusedError(f"llama-bench ended with {ran.returncode}: {ran.stderr.strip().rpartition(chr(10))[2]}")
        ((nanoseconds,),) = [row["samples_ns"] for row in json.loads(ran.stdout)]
        return float(nanoseconds) * NS

    def release(self) -> None:
        """Nothing is held between runs."""
