"""Writes the lines of the package that a process runs, each once, as soon as it runs.

The copy of the package of a recording imports this module first, in the processes that tests start. Such a process may
be killed at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# The process id of the run of pytest, and the test that runs now.
RECORDER, TEST = "LINES_RECORDED_BY", "LINES_RECORDED_FOR"
# Servers may write cache files and nothing else in the folder of their code.
FOLDER = "__pycache__"
PREFIX = "lines_of_a_child-"
PACKAGE = Path(__file__).parent


def record() -> None:
    """Records this process unless it is the run of pytest itself."""
    if os.environ.get(RECORDER, str(os.getpid())) == str(os.getpid()):
        return
    with contextlib.suppress(OSError):  # a test may take away descriptors and the right to write
        (PACKAGE / FOLDER).mkdir(exist_ok=True)
        path = PACKAGE / FOLDER / f"{PREFIX}{os.getpid()}-{time.monotonic_ns()}"
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # A test may expect that low numbers are free.
        descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 100)
        os.close(opened)
        os.write(descriptor, f"{os.environ.get(TEST, '')}\n".encode())
        _trace(descriptor)


def _trace(descriptor: int) -> None:
    inside = f"{PACKAGE}/"
    seen: set[tuple[CodeType, int]] = set()

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        # Not the code of modules and classes, which an import runs.
        is_recorded = code.co_filename.startswith(inside) and code.co_flags & inspect.CO_OPTIMIZED
        return on_line if is_recorded else None

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        key = (frame.f_code, frame.f_lineno)
        if key not in seen:
            seen.add(key)
            with contextlib.suppress(OSError):
                os.write(descriptor, f"{frame.f_code.co_filename.removeprefix(inside)}:{frame.f_lineno}\n".encode())
        return on_line

    threading.settrace(on_call)
    sys.settrace(on_call)
