"""Threads for what would hold up the event loop: tokenizing, rendering templates, writing large replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from imp_service.core.reserve import LARGE_TEXT_BYTES
from imp_service.serving.process_memory import give_back
from imp_service.serving.refusal import Refusal

T = TypeVar("T")
# Work on less text than this is done at once: handing it over would cost more.
SMALL_BYTES = 1024


class TextWorkers:
    """A pool with a bound on the bytes that wait for it or are in work. Used from the event loop's thread.

    One large text is in work at a time: the memory plan counts one, and the other threads stay free for short texts.
    """

    def __init__(self, n_threads: int, max_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="imp-text")
        self._max_bytes = max_bytes
        self._large = asyncio.Semaphore(1)
        self.n_bytes = 0
        # A large text was in work since freed memory was last given back.
        self._has_grown = False
        self._is_closed = False

    async def run(self, work: Callable[[], T], n_bytes: int) -> T:
        """The result of `work` on `n_bytes` of text; QUEUE_FULL where too much text waits."""
        if n_bytes < SMALL_BYTES:
            return work()
        self._admit(n_bytes)
        if n_bytes > LARGE_TEXT_BYTES:
            await self._turn(n_bytes)
        # Shielded: a thread cannot be stopped, and its bytes are held until it is done.
        return await asyncio.shield(self._started(work, n_bytes))

    async def look(self, work: Callable[[], T], n_bytes: int) -> T:
        """The same for work that allocates little, however long the text is."""
        self._admit(n_bytes)
        return await asyncio.shield(self._started(work, n_bytes, is_look=True))

    async def write(self, work: Callable[[], T]) -> T:
        """The result of `work` on a reply: its request's text was admitted, and nothing more is refused."""
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """The same for a caller that does not wait."""
        return self._started(work, 0, is_look=True)

    def _admit(self, n_bytes: int) -> None:
        if self.n_bytes + n_bytes > self._max_bytes:
            raise Refusal(
                "QUEUE_FULL",
                f"{self.n_bytes} bytes of prompts wait to be read, at most {self._max_bytes} may",
                {"bound": "scheduler.max_waiting_bytes"},
                retry_after=1.0,
            )
        self.n_bytes += n_bytes

    async def _turn(self, n_bytes: int) -> None:
        """Waits until no other large text is in work."""
        try:
            await self._large.acquire()
        except BaseException:
            self.n_bytes -= n_bytes
            raise

    def _started(self, work: Callable[[], T], n_bytes: int, *, is_look: bool = False) -> asyncio.Future[T]:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        is_large = n_bytes > LARGE_TEXT_BYTES and not is_look

        def done(_: object) -> None:
            self.n_bytes -= n_bytes
            if is_large:
                self._large.release()
                self._has_grown = True
            if self._has_grown and not self.n_bytes and not self._is_closed:
                self._has_grown = False
                self._pool.submit(give_back)

        future.add_done_callback(done)
        return future

    def close(self) -> None:
        """Starts nothing further; does not wait for what is in work."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
