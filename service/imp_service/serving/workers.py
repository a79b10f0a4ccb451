"""Threads for what would hold up the event loop: tokenizing, rendering templates, compiling constraints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from imp_service.serving.refusal import Refusal

T = TypeVar("T")
# Work on less text than this is done at once: handing it over would cost more.
SMALL_BYTES = 1024


class TextWorkers:
    """A pool with a bound on the bytes that wait for it or are in work. Used from the event loop's thread."""

    def __init__(self, n_threads: int, max_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="imp-text")
        self._max_bytes = max_bytes
        self.n_bytes = 0

    async def run(self, work: Callable[[], T], n_bytes: int) -> T:
        """The result of `work` on `n_bytes` of text; QUEUE_FULL where too much text waits."""
        if n_bytes < SMALL_BYTES:
            return work()
        if self.n_bytes + n_bytes > self._max_bytes:
            raise Refusal(
                "QUEUE_FULL",
                f"{self.n_bytes} bytes of prompts wait to be read, at most {self._max_bytes} may",
                {"bound": "scheduler.max_waiting_bytes"},
                retry_after=1.0,
            )
        self.n_bytes += n_bytes
        # Shielded: a thread cannot be stopped, and its bytes are held until it is done.
        return await asyncio.shield(self._started(work, n_bytes))

    def _started(self, work: Callable[[], T], n_bytes: int) -> asyncio.Future[T]:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: self._release(n_bytes))
        return future

    def _release(self, n_bytes: int) -> None:
        self.n_bytes -= n_bytes

    def close(self) -> None:
        """Starts nothing further; does not wait for what is in work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
