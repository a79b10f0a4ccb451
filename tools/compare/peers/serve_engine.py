"""Runs one engine that takes commands: a line of JSON in, a line of JSON out.

`python serve_engine.py ENGINE TASK` with the task as JSON. What libraries write to stdout goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2]
# In place of this folder.
sys.path[:1] = [str(TOOLS), str(TOOLS.parent / "tests")]

from compare.peers.engines.protocol import ENGINES, Task  # noqa: E402
from compare.refused import RefusedError  # noqa: E402
from imp_service.core.bench.cases import Case  # noqa: E402


def load(name: str, task: Task) -> tuple[Any, float]:
    """Loads the engine. Returns it and the seconds that loading took, without its import."""
    module, kind = ENGINES[name]
    found = getattr(importlib.import_module(f"compare.peers.engines.{module}"), kind)
    started = time.perf_counter()
    return found(task), time.perf_counter() - started


def peak_bytes() -> int:
    """Returns the peak resident memory of this process, with mapped files."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None  # narrows
    return int(match.group(1)) * 1024


def answer(words: dict[str, Any], commands: dict[str, Callable[..., object]]) -> dict[str, object]:
    """Answers one command."""
    arguments = [Case(**words["case"])] if "case" in words else []
    try:
        return {"value": commands[words["do"]](*arguments)}
    except RefusedError as refusal:
        return {"refused": str(refusal)}


def main() -> None:
    """Runs until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name, task = sys.argv[1], json.loads(sys.argv[2])
    task = Task(**(task | {"path": Path(task["path"])}))
    # The engine's threads inherit the affinity, and OpenMP binds its threads within it.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task.threads])
    try:
        engine, seconds = load(name, task)
    except RefusedError as refusal:
        print(json.dumps({"refused": str(refusal)}), file=answers)
        return
    print(json.dumps({"value": seconds}), file=answers)
    commands: dict[str, Callable[..., object]] = {
        "prepare": engine.prepare,
        "run": engine.run,
        "release": engine.release,
        "peak": getattr(engine, "peak_bytes", peak_bytes),
        "planned": getattr(engine, "planned_bytes", lambda: None),
        "note": getattr(engine, "note", lambda: None),
    }
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), commands)), file=answers)


if __name__ == "__main__":
    main()
