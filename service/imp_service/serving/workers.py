"""Threads for work that would block the event loop: tokenizing, rendering templates, writing large replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from imp_service.core.reserve import LARGE_TEXT_BYTES
from imp_service.serving.process_memory import release_free_memory
from imp_service.serving.refusal import Refusal

T = TypeVar("T")
# Work on less text than this runs on the event loop: a thread would cost more time.
SMALL_BYTES = 1024
# Reading or checking a larger request takes too long for the event loop.
MAX_INLINE_BYTES = 16 * 1024


class TextWorkers:
    """A pool of threads with a limit on the bytes of waiting and running work. Used from the event loop's thread.

    It works on one large text at a time: the memory plan counts one, and the other threads stay free for short texts.
    """

    def __init__(self, n_threads: int, max_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="imp-text")
        self._max_bytes = max_bytes
        self._large = asyncio.Semaphore(1)
        self.n_bytes = 0
        # Work on a large text has ended since freed memory last went back to the system.
        self._has_freed_large = False
        self._is_closed = False

    async def run(self, work: Callable[[], T], n_bytes: int) -> T:
        """The result of `work` on `n_bytes` of text. Raises QUEUE_FULL if too much text waits."""
        if n_bytes < SMALL_BYTES:
            return work()
        self._reserve(n_bytes)
        if n_bytes > LARGE_TEXT_BYTES:
            await self._wait_for_large(n_bytes)
        # Shielded: a thread cannot be stopped, and its bytes count until it has ended.
        return await asyncio.shield(self._started(work, n_bytes))

    async def run_light(self, work: Callable[[], T], n_bytes: int) -> T:
        """The same for work that allocates little memory even for a large text."""
        self._reserve(n_bytes)
        return await asyncio.shield(self._started(work, n_bytes, is_light=True))

    async def run_light_if_large(self, work: Callable[[], T], n_bytes: int) -> T:
        """The same. Small work runs on the event loop."""
        return work() if n_bytes <= MAX_INLINE_BYTES else await self.run_light(work, n_bytes)

    async def write(self, work: Callable[[], T]) -> T:
        """The result of `work` on a reply. It is never refused, since its request was admitted."""
        return await asyncio.shield(self.begin(work))

    async def write_if_large(self, work: Callable[[], T], n_bytes: int) -> T:
        """The same. A small reply is written on the event loop."""
        return work() if n_bytes <= MAX_INLINE_BYTES else await self.write(work)

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """The same as a future."""
        return self._started(work, 0, is_light=True)

    def _reserve(self, n_bytes: int) -> None:
        if self.n_bytes + n_bytes > self._max_bytes:
            raise Refusal(
                "QUEUE_FULL",
                f"{self.n_bytes} bytes of prompts are waiting, and the request adds {n_bytes}: more than "
                f"scheduler.max_waiting_bytes = {self._max_bytes}",
                {"bound": "scheduler.max_waiting_bytes"},
                retry_after=1.0,
            )
        self.n_bytes += n_bytes

    async def _wait_for_large(self, n_bytes: int) -> None:
        """Waits until no other large text is worked on."""
        try:
            await self._large.acquire()
        except BaseException:
            self.n_bytes -= n_bytes
            raise

    def _started(self, work: Callable[[], T], n_bytes: int, *, is_light: bool = False) -> asyncio.Future[T]:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        is_large = n_bytes > LARGE_TEXT_BYTES and not is_light

        def done(_: object) -> None:
            self.n_bytes -= n_bytes
            if is_large:
                self._large.release()
                self._has_freed_large = True
            if self._has_freed_large and not self.n_bytes and not self._is_closed:
                self._has_freed_large = False
                self._pool.submit(release_free_memory)

        future.add_done_callback(done)
        return future

    def close(self) -> None:
        """Starts nothing more. Does not wait for running work."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
