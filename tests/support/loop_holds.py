"""Measures how long each step holds the loop of the in-process servers, in CPU time of its thread.

Code that tests run on the loop and garbage collection do not count.
A virtual machine counts time that its host took away as CPU time, so one slow step may be the host's fault.
A step is therefore a finding when it is slow for the second time, or far slower than its limit.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from support.findings import FINDINGS

# The limit of one step of the loop.
MOST_SECONDS = 0.02
# The limit of the first step of a call, in which gRPC decodes the whole request. 4 MiB took 25 ms.
FIRST_SECONDS = 0.1
# A step that takes this many times its limit is a finding at once.
FAR = 5
LOOP_THREAD = "test-loop"
IMP = "imp_service"


_run = asyncio.Handle._run
_collecting = threading.local()
_is_watching: list[bool] = []
_slow: Counter[str] = Counter()


def watch_holds() -> None:
    """Starts watching, until the process ends."""
    if not _is_watching:
        _is_watching.append(True)
        gc.callbacks.append(_collected)
        asyncio.Handle._run = _timed  # type: ignore[method-assign]


def _timed(handle: asyncio.Handle) -> None:
    if threading.current_thread().name != LOOP_THREAD:
        return _run(handle)
    # Read before the step runs: a finished task has lost its coroutine.
    name = name_of(handle._callback)  # type: ignore[attr-defined]
    _collecting.seconds = 0.0
    began = time.thread_time()
    _run(handle)
    held = time.thread_time() - began - _collecting.seconds
    limit = MOST_SECONDS if f"{IMP}." in name or " > " in name else FIRST_SECONDS
    if name and held > limit:
        step = re.sub(r"Task-\d+", "Task", name)
        _slow[step] += 1
        if _slow[step] > 1 or held > FAR * limit:
            FINDINGS.add(f"RPC-30, O03: the event loop was held for {1000 * held:.0f} ms by {name}")
    return None


def name_of(callback: Any) -> str:
    """Returns the name of the imp code that a step of the loop runs; empty for code of tests and libraries."""
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        function = inspect.unwrap(callback)
        module = getattr(function, "__module__", None) or ""
        return f"{module}.{getattr(function, '__qualname__', function)}" if module.startswith(IMP) else ""
    names = list(_codes(task.get_coro()))
    if any("/tests/" in code.co_filename for code in names):
        return ""
    ours = [code.co_qualname for code in names if f"/{IMP}/" in code.co_filename]
    return " > ".join([task.get_name(), *ours])


def _codes(awaited: Any) -> Iterator[Any]:
    """Yields the code of a coroutine and of the coroutines that it awaits."""
    while awaited is not None:
        codes = (getattr(awaited, name, None) for name in ("cr_code", "gi_code", "ag_code"))
        yield from (code for code in codes if inspect.iscode(code))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _collected(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _collecting.began = time.thread_time()
    else:
        _collecting.seconds = getattr(_collecting, "seconds", 0.0) + time.thread_time() - _collecting.began
