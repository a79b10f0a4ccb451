"""Compares starts: the time to the first token after a load, and the peak memory of a process that ran a prompt."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from compare.goals import Verdict, verdict_line
from compare.outcome import IMP
from compare.peers.engine_process import EngineProcess, engine_process
from compare.peers.engines.protocol import Task
from compare.refused import RefusedError
from compare.rounds import ShowProgress
from compare.table import Table, numbers
from imp_service.core.bench.cases import Case
from imp_service.core.bench.report import Spread

# The cache has room for this prompt and its answer at least.
PROMPT_TOKENS, CACHE_TOKENS = 512, 768
# Goal for the peak memory of a process, relative to the file plus the planned cache and scratch.
PEAK_MEMORY = 1.10
MIB = 1024**2


@dataclass(frozen=True)
class Start:
    """Repeated loads and prompts: seconds to the first token, and the peak memory of the process."""

    engine: str
    threads: int
    seconds: Spread
    peak_bytes: Spread
    file_bytes: int
    planned_bytes: int | None = None  # the file, and what the engine plans besides the weights
    note: str | None = None  # what restricts the engine on this machine

    def verdicts(self) -> list[Verdict]:
        """Returns a verdict on the memory, if the engine plans its memory."""
        if self.planned_bytes is None:
            return []
        found = self.peak_bytes.median / self.planned_bytes
        return [Verdict("file, cache and scratch", found, PEAK_MEMORY, is_least=False)]

    def lines(self, table: Table, ours: Start) -> list[str]:
        """Returns seconds to the first token, imp's ratio to them, and the peak memory next to the file's size."""
        is_imp = self.engine == IMP
        label = f"load to a first token, {self.threads} thread{'s' * (self.threads > 1)}, seconds" if is_imp else ""
        ratio = "" if is_imp else f"{self.seconds.median / ours.seconds.median:.2f} ×"
        peak = self.peak_bytes.median
        memory = f"peak {peak / MIB:.0f} MiB ({peak / self.file_bytes:.2f} × the file)"
        lines = [f"{table.row(label, self.engine, *numbers(self.seconds), ratio)}  {memory}"]
        lines += [table.row("", f"peak of memory {verdict_line(found)}") for found in [self.verdicts()] if found]
        return [*lines, *([table.row("", f"{self.engine}: {self.note}")] if self.note else [])]

    def as_json(self) -> dict[str, object]:
        """Returns all numbers."""
        sizes = {} if self.planned_bytes is None else {"planned_bytes": self.planned_bytes}
        notes = {} if self.note is None else {"note": self.note}
        return {
            "engine": self.engine,
            "threads": self.threads,
            "file_bytes": self.file_bytes,
            **sizes,
            "first_token_seconds": self.seconds.as_json(),
            "peak_bytes": self.peak_bytes.as_json(),
            **notes,
            "goals": [verdict.as_json() for verdict in self.verdicts()],
        }


def compare_starts(
    task: Task, names: Sequence[str], reps: int, show: ShowProgress
) -> tuple[list[Start], dict[str, str]]:
    """Starts the engines in turn, with the file in the page cache. Returns also why engines do not load it.

    Raises RefusedError if imp does not load it.
    """
    task = dataclasses.replace(task, kv_tokens=CACHE_TOKENS)
    case = Case("prefill", task.threads, PROMPT_TOKENS)
    seconds: dict[str, list[float]] = defaultdict(list)
    peaks: dict[str, list[float]] = defaultdict(list)
    planned: dict[str, int | None] = {}
    notes: dict[str, str | None] = {}
    refusals: dict[str, str] = {}
    task.path.read_bytes()  # into the page cache
    for rep in range(reps):
        for name in names:
            if name in refusals:
                continue
            show(f"start {rep + 1}: {name}")
            try:
                with engine_process(name, task) as engine:
                    seconds[name].append(engine.load_seconds + first_token_seconds(engine, task))
                    engine.ask("prepare", case)
                    engine.ask("run")
                    peaks[name].append(engine.ask("peak"))
                    planned[name] = engine.ask("planned")
                    notes[name] = engine.ask("note")
            except RefusedError as refusal:
                if name == IMP:
                    raise
                refusals[name] = str(refusal)
    size = task.path.stat().st_size
    starts = [
        Start(
            *(name, task.threads, Spread.of(seconds[name]), Spread.of(peaks[name]), size),
            planned_bytes=None if (beside := planned[name]) is None else size + beside,
            note=notes[name],
        )
        for name in names
        if name not in refusals
    ]
    return starts, refusals


def first_token_seconds(engine: EngineProcess, task: Task) -> float:
    """Runs a prompt of one token. An engine that maps the weights reads them now; others read them while loading."""
    started = time.perf_counter()
    engine.ask("prepare", Case("prefill", task.threads, 1))
    engine.ask("run")
    seconds = time.perf_counter() - started
    engine.ask("release")
    return seconds
