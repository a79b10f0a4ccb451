"""Measures the time to the first token after a load, and the peak memory of a process that ran a prompt."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Sequence

from bench.compare_peers.engine_process import EngineProcess, engine_process
from bench.compare_peers.engines.protocol import RefusedError, Task
from bench.compare_peers.outcome import IMP, Start
from bench.compare_peers.rounds import ShowProgress
from imp_service.core.bench.cases import Case
from imp_service.core.bench.report import Spread

# The cache has room for this prompt and its answer at least.
PROMPT_TOKENS, CACHE_TOKENS = 512, 768


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
