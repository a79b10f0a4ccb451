"""Python loads this module first in a server that must be able to end itself: each way is a signal.

Only the main thread acts, between two instructions, as a fault of the server's own would; but the thread that gets
SPIN runs an endless loop at once. imp neither uses nor resets these signals, and a forked engine process inherits the
handlers of its parent.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

# How a process ends that ends itself.
STATUS = 1
# Address space that a process gets before it has none left.
MARGIN_BYTES = 64 * 1024**2


def _exits(number: int, _: FrameType | None) -> None:
    os._exit(STATUS)


def _has_no_memory(number: int, _: FrameType | None) -> None:
    """Takes all memory that it may have. Then the kernel kills a process."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MARGIN_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    taken = []
    with suppress(MemoryError):
        while True:
            taken.append(bytearray(1 << 20))
    os.kill(os.getpid(), signal.SIGKILL)


def _loops(number: int, _: FrameType | None) -> None:
    """An endless loop in C, which keeps every other thread of Python from running."""
    re.match("(a+)+b", "a" * 200)


def _locks(number: int, _: FrameType | None) -> None:
    """Waits for itself. Other threads run."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


DOOMS: dict[str, Any] = {"exit": _exits, "memory": _has_no_memory, "loop": _loops, "deadlock": _locks}
SIGNALS = {name: signal.SIGRTMIN + 1 + n for n, name in enumerate(DOOMS)}

SPIN = signal.SIGRTMIN + 1 + len(DOOMS)
# An instruction that jumps to itself.
SPINS = {"x86_64": b"\xeb\xfe", "aarch64": b"\x00\x00\x00\x14"}
_code: list[Any] = []


def _let_threads_spin() -> None:
    """Python's own handlers run in the main thread, and need the interpreter."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(SPINS[platform.machine()])
    start = (ctypes.c_char * len(page)).from_buffer(page)
    _code.append(start)
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    set_handler(SPIN, ctypes.addressof(start))


if "serve" in sys.orig_argv:
    _let_threads_spin()
    for doom, act in DOOMS.items():
        signal.signal(SIGNALS[doom], act)
