"""Measures how long each step holds the loop of the in-process servers, in CPU time of its thread.

Code that tests run on the loop and garbage collection do not count, nor does time that the host stole, which a virtual
machine counts as CPU time. support.run.loop_verdict judges the steps at the end of the session.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from support.run.taken_time import Taken, TakenTime

# The limit of one step of the loop.
MOST_SECONDS = 0.02
# The limit of a step that may decode a request, which cannot be interrupted. 4 MiB took 25 ms.
DECODE_SECONDS = 0.1
# A step that waited for a processor longer than it ran found its caches cold, so its limit is this many times higher.
CONTENDED = 2
LOOP_THREAD = "test-loop"
IMP = "imp_service"
# A step has the names of its task and of this many of its innermost coroutines.
INNERMOST = 2
# gRPC's coroutine that waits for a request.
RECEIVE = "_receive_message"
# For each kind of coroutine, the attributes with its code and with what it awaits.
KINDS = (("cr_code", "cr_await"), ("ag_code", "ag_await"), ("gi_code", "gi_yieldfrom"))
WRAPPERS = ("coroutine_wrapper", "async_generator_asend")


class Hold(NamedTuple):
    """A step that held the loop for longer than its limit."""

    step: str
    test: str
    seconds: float
    times: float  # its limit
    is_stolen: bool  # whether the host stole time meanwhile, so that the measured time may be wrong


_run = asyncio.Handle._run
_collecting = threading.local()
_is_watching: list[bool] = []
_taken: list[TakenTime] = []  # of the loop's thread
_holds: deque[Hold] = deque(maxlen=10_000)


def watch_holds() -> None:
    """Starts watching, until the process ends."""
    if not _is_watching:
        _is_watching.append(True)
        gc.callbacks.append(_collected)
        asyncio.Handle._run = _timed  # type: ignore[method-assign]


def take_holds() -> list[Hold]:
    """Returns the slow steps since the last call."""
    return [_holds.popleft() for _ in range(len(_holds))]


def _timed(handle: asyncio.Handle) -> None:
    if threading.current_thread().name != LOOP_THREAD:
        return _run(handle)
    if not _taken:
        _taken.append(TakenTime())
    # Read before the step runs: a finished task has lost its coroutine.
    step = Step.of(handle._callback)  # type: ignore[attr-defined]
    _taken[0].begin()
    _collecting.seconds = 0.0
    began = time.thread_time()
    _run(handle)
    held = time.thread_time() - began - _collecting.seconds
    if held > MOST_SECONDS and (name := step.name):
        _note(name, held, step.limit, _taken[0].since())
    return None


def _note(name: str, held: float, limit: float, taken: Taken) -> None:
    """Records a step that was slow, also when what was taken from its thread is considered."""
    times = (held - taken.stolen) / (limit * (CONTENDED if taken.waited > held else 1))
    if times > 1:
        # pytest sets it to "FILE::TEST (PHASE)".
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        _holds.append(Hold(name, test, held, times, taken.stolen > 0))


class Step(NamedTuple):
    """What a step of the loop runs: a callback, or the coroutines of a task, up to where the innermost waits."""

    callback: Any
    task: asyncio.Task[Any] | None
    codes: list[Any]  # of the task's coroutines

    @staticmethod
    def of(callback: Any) -> Step:
        """Returns the step that calls `callback`."""
        task = getattr(callback, "__self__", None)
        if not isinstance(task, asyncio.Task):
            return Step(callback, None, [])
        return Step(callback, task, list(_codes(task.get_coro())))

    @property
    def name(self) -> str:
        """The name of the imp code that it runs; empty for code of tests and libraries."""
        if self.task is None:
            function = inspect.unwrap(self.callback)
            module = getattr(function, "__module__", None) or ""
            return f"{module}.{getattr(function, '__qualname__', function)}" if module.startswith(IMP) else ""
        if any("/tests/" in code.co_filename for code in self.codes):
            return ""
        return " > ".join([re.sub(r"Task-\d+", "Task", self.task.get_name()), *self._ours[-INNERMOST:]])

    @property
    def limit(self) -> float:
        """Seconds for which it may hold the loop."""
        is_decoding = self.task is not None and (not self._ours or any(code.co_name == RECEIVE for code in self.codes))
        return DECODE_SECONDS if is_decoding else MOST_SECONDS

    @property
    def _ours(self) -> list[str]:
        return [code.co_qualname for code in self.codes if f"/{IMP}/" in code.co_filename]


def _codes(awaited: Any) -> Iterator[Any]:
    """Yields the code of a coroutine and of the coroutines that it awaits."""
    while awaited is not None:
        for code, next_one in KINDS:
            if hasattr(awaited, code):
                yield getattr(awaited, code)
                awaited = getattr(awaited, next_one)
                break
        else:
            # Cython awaits a coroutine, and everybody the next item of a generator, through an object that hides it.
            hidden = gc.get_referents(awaited) if type(awaited).__name__ in WRAPPERS else ()
            awaited = next((each for each in hidden if any(hasattr(each, code) for code, _ in KINDS)), None)


def _collected(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _collecting.began = time.thread_time()
    else:
        _collecting.seconds = getattr(_collecting, "seconds", 0.0) + time.thread_time() - _collecting.began
