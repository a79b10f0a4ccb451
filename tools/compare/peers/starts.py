"""A start as a case: the time to the first token after a load, and the peak memory of a process that ran a prompt."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass

from compare.outcome import Run
from compare.peers.engine_process import EngineProcess, engine_process
from compare.peers.engines.protocol import Task
from compare.processes import OtherProcesses
from imp_service.core.bench.cases import Case

# The cache has room for this prompt and its answer at least.
PROMPT_TOKENS, CACHE_TOKENS = 512, 768


@dataclass(frozen=True)
class Start:
    """A load and a prompt of one token."""

    threads: int
    kind: str = "start"

    @property
    def label(self) -> str:
        """The name of its rows in the table."""
        return f"load to a first token, {self.threads} thread{'s' * (self.threads > 1)}, seconds"


class StartedEngine:
    """An engine whose process runs from its load to the end of a prompt. `note`: what restricts it here."""

    def __init__(self, name: str, task: Task) -> None:
        self.name = name
        self.note: str | None = None
        self._task = dataclasses.replace(task, kv_tokens=CACHE_TOKENS)

    def prepare(self, start: Start) -> None:
        self.run(start)  # the file is in the page cache then

    def run(self, start: Start) -> Run:
        others = OtherProcesses(os.getpid())  # whose CPU time includes that of a child that has ended
        with engine_process(self.name, self._task) as engine:
            seconds = engine.load_seconds + first_token_seconds(engine, start.threads)
            engine.ask("prepare", Case("prefill", start.threads, PROMPT_TOKENS))
            engine.ask("run")
            file_bytes = self._task.path.stat().st_size
            figures = {"peak_bytes": engine.ask("peak"), "file_bytes": file_bytes}
            if (planned := engine.ask("planned")) is not None:
                figures["planned_bytes"] = file_bytes + planned
            self.note = engine.ask("note")
        return Run(seconds, others.cpus(), figures)

    def release(self) -> None:
        """Nothing is held between runs."""


def first_token_seconds(engine: EngineProcess, threads: int) -> float:
    """Runs a prompt of one token. An engine that maps the weights reads them now; others read them while loading."""
    started = time.perf_counter()
    engine.ask("prepare", Case("prefill", threads, 1))
    engine.ask("run")
    seconds = time.perf_counter() - started
    engine.ask("release")
    return seconds
