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
Turn = tuple[Callable[[], Any], asyncio.Future[Any]]


class ConstraintTurns:
    """One thread, and a line for each tenant. Used from the event loop's thread.

    However many constraints a tenant sends, each other tenant waits for one of them at most. A caller that is cancelled
    leaves its line; a compilation that has begun runs to its own limits.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="imp-constraint")
        # Tenants with someone in line, the next one first.
        self._lines: OrderedDict[str, deque[Turn]] = OrderedDict()
        self._is_busy = False
        self._is_closed = False

    async def run(self, work: Callable[[], T], tenant: str) -> T:
        """The result of `work` when its tenant's turn has come."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        turn: Turn = (work, result)
        self._lines.setdefault(tenant, deque()).append(turn)
        self._next()
        try:
            return await result
        except asyncio.CancelledError:
            self._leave(tenant, turn)
            raise

    def _leave(self, tenant: str, turn: Turn) -> None:
        """Removes a turn that still waits: its constraint is large, and nobody needs it any more."""
        line = self._lines.get(tenant)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[tenant]

    def _next(self) -> None:
        while self._lines and not self._is_busy and not self._is_closed:
            tenant, line = self._lines.popitem(last=False)
            work, result = line.popleft()
            if line:
                # Behind all others.
                self._lines[tenant] = line
            if not result.done():
                self._is_busy = True
                running = asyncio.get_running_loop().run_in_executor(self._pool, work)
                running.add_done_callback(partial(self._ended, result))

    def _ended(self, result: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._is_busy = False
        error = None if done.cancelled() else done.exception()
        if not result.done():
            if done.cancelled():
                result.cancel()
            elif error is not None:
                result.set_exception(error)
            else:
                result.set_result(done.result())
        self._next()

    def close(self) -> None:
        """Starts nothing further; does not wait for the compilation that runs."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
