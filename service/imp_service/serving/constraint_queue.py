"""Compiles constraints one at a time, on a thread of their own; tenants take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
# The work, and its result for the caller.
Entry = tuple[Callable[[], Any], asyncio.Future[Any]]


class ConstraintQueue:
    """One thread, and a queue for each tenant. Used from the event loop's thread.

    However many constraints a tenant sends, another tenant waits for at most one of them. A caller that is cancelled
    leaves the queue; a compilation that has begun runs to its own limits.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="imp-constraint")
        # Tenants with waiting work, the next one first.
        self._queues: OrderedDict[str, deque[Entry]] = OrderedDict()
        self._is_compiling = False
        self._is_closed = False

    async def run(self, work: Callable[[], T], tenant: str) -> T:
        """The result of `work`, which runs when it is its tenant's turn."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        entry: Entry = (work, result)
        self._queues.setdefault(tenant, deque()).append(entry)
        self._start_next()
        try:
            return await result
        except asyncio.CancelledError:
            self._leave(tenant, entry)
            raise

    def _leave(self, tenant: str, entry: Entry) -> None:
        """Removes an entry that still waits. Its constraint may be large, and nobody needs it any more."""
        queue = self._queues.get(tenant)
        if queue is not None and entry in queue:
            queue.remove(entry)
            if not queue:
                del self._queues[tenant]

    def _start_next(self) -> None:
        while self._queues and not self._is_compiling and not self._is_closed:
            tenant, queue = self._queues.popitem(last=False)
            work, result = queue.popleft()
            if queue:
                # This tenant is last now.
                self._queues[tenant] = queue
            if not result.done():
                self._is_compiling = True
                running = asyncio.get_running_loop().run_in_executor(self._pool, work)
                running.add_done_callback(partial(self._finish, result))

    def _finish(self, result: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._is_compiling = False
        error = None if done.cancelled() else done.exception()
        if not result.done():
            if done.cancelled():
                result.cancel()
            elif error is not None:
                result.set_exception(error)
            else:
                result.set_result(done.result())
        self._start_next()

    def close(self) -> None:
        """Starts nothing more. Does not wait for the compilation that runs."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
