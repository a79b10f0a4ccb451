"""The program that compiles constraints on trial, in a separate process that the kernel ends at its limits.

Run as a file, with the folder of llguidance and the bytes it may allocate. It imports nothing of imp, so that it
starts fast and stays small. A line of JSON goes out when it has started. Then a line of JSON comes in for each
constraint and a line of JSON goes out.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import Any

# The worker ends after this long without a request; the server starts another one when it needs it.
_IDLE_SECONDS = 60
# The share of the limit that earlier constraints may leave in the allocator; above it, a new worker takes over.
_LEFTOVER_SHARE = 0.25
# Stands for every control token that a grammar names: the worker has no vocabulary.
CONTROL_TOKEN = 257


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    ]


class _Heap:
    """Bytes that this process has allocated."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        # Without mallinfo2 only whole pages can be counted.
        self._counts = hasattr(self._library, "mallinfo2")
        if self._counts:
            self._library.mallinfo2.restype = _Mallinfo2

    def n_bytes(self) -> int:
        if not self._counts:
            return _pages(1)
        info = self._library.mallinfo2()
        return int(info.uordblks + info.hblkhd)

    def trim(self) -> None:
        if hasattr(self._library, "malloc_trim"):
            self._library.malloc_trim(0)


class _Bytes:
    """The smallest vocabulary: what compiling costs does not depend on it."""

    tokens = (*(bytes([byte]) for byte in range(256)), b"end", b"control")
    special_token_ids = (256, CONTROL_TOKEN)
    eos_token_id = 256
    bos_token_id = None

    def __call__(self, _text: bytes) -> list[int]:
        return []


def _pages(column: int) -> int:
    """Bytes mapped (0) or resident (1)."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()


def _compile(request: dict[str, Any], tokenizer: Any, heap: _Heap) -> dict[str, object]:
    from llguidance import LLMatcher, LLParserLimits

    before = heap.n_bytes()
    # By default these signals end the process, even while native code runs.
    signal.setitimer(signal.ITIMER_PROF, request["cpu_seconds"])
    signal.setitimer(signal.ITIMER_REAL, request["wall_seconds"])
    matcher = LLMatcher(tokenizer, request["grammar"], log_level=0, limits=LLParserLimits(**request["limits"]))
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {"error": matcher.get_error(), "n_bytes": max(heap.n_bytes() - before, 0)}


def _main(folder: str, n_bytes: int) -> None:
    # A terminal and systemd send these to every process of a server, which then drains. Its end closes our stdin.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGALRM, signal.SIGPROF):
        # A server ignores SIGALRM, and its children inherit that.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    sys.path.append(folder)
    from llguidance import LLTokenizer, TokenizerWrapper

    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes()), eos_token=[256])
    heap = _Heap()
    base = _pages(0)
    resource.setrlimit(resource.RLIMIT_AS, (base + n_bytes, base + n_bytes))
    # Unbuffered: select() does not see bytes that are in a buffer of Python.
    with os.fdopen(0, "rb", buffering=0) as requests, os.fdopen(1, "wb", buffering=0) as replies:
        replies.write(b'{"ready": true}\n')
        pending = b""
        while True:
            if b"\n" not in pending:
                if not select.select([requests], [], [], _IDLE_SECONDS)[0]:
                    return
                if not (part := requests.read(1 << 16)):
                    return
                pending += part
                continue
            line, pending = pending.split(b"\n", 1)
            try:
                reply = json.dumps(_compile(json.loads(line), tokenizer, heap))
            except MemoryError:
                os.kill(os.getpid(), signal.SIGABRT)  # The same end as when the library gets no memory.
            replies.write(reply.encode() + b"\n")
            heap.trim()
            if _pages(0) - base > n_bytes * _LEFTOVER_SHARE:
                return


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If a container runs out of memory, the kernel kills this process first.
    Path("/proc/self/oom_score_adj").write_text("1000")
    _main(sys.argv[1], int(sys.argv[2]))
