"""The calls that run: a drain waits for them, and can end them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol


class RunningCall(Protocol):
    """A call that can be ended from outside."""

    # Its caller goes on with another server.
    goes_on_elsewhere: bool

    def end(self, error: Exception) -> None:
        """Ends the call with this error soon. A second error changes nothing."""


class RunningCalls:
    """On the event loop's thread. A drain waits for requests; it does not wait for other calls, such as health."""

    def __init__(self) -> None:
        self._requests: set[RunningCall] = set()
        self._others: set[RunningCall] = set()
        self._idle: set[asyncio.Future[None]] = set()
        self._watchers: list[Callable[[], None]] = []
        # When a call last began, by the loop's clock.
        self._began_at = -math.inf

    def watch(self, watcher: Callable[[], None]) -> None:
        """Calls `watcher` whenever a request begins."""
        self._watchers.append(watcher)

    @property
    def n_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    def enter(self, call: RunningCall, *, is_request: bool) -> None:
        """A call begins."""
        self._began_at = asyncio.get_running_loop().time()
        (self._requests if is_request else self._others).add(call)
        if is_request:
            for watcher in self._watchers:
                watcher()

    def leave(self, call: RunningCall) -> None:
        """A call has ended, or can no longer be ended. A second leave() does nothing."""
        self._others.discard(call)
        self._requests.discard(call)
        if not self._requests:
            for waiting in self._idle:
                if not waiting.done():
                    waiting.set_result(None)

    async def wait_until_idle(self) -> None:
        """Returns when no request runs."""
        while self._requests:
            waiting = asyncio.get_running_loop().create_future()
            self._idle.add(waiting)
            try:
                await waiting
            finally:
                self._idle.discard(waiting)

    async def wait_until_quiet(self, seconds: float, *, within: float) -> None:
        """Returns when no call has begun for `seconds`, at the latest after `within` seconds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + within
        while (left := min(self._began_at + seconds, give_up) - loop.time()) > 0:
            await asyncio.sleep(left)

    async def end_requests(self, error: Exception, *, within: float) -> None:
        """Ends every request with `error`, and waits for their ends, for at most `within` seconds."""
        for call in tuple(self._requests):
            call.end(error)
        try:
            async with asyncio.timeout(within):
                await self.wait_until_idle()
        except TimeoutError:
            return

    def end_those_that_go_on(self, error: Exception) -> None:
        """Ends every request whose caller goes on elsewhere."""
        for call in tuple(self._requests):
            if call.goes_on_elsewhere:
                call.end(error)

    def end_others(self, error: Exception) -> None:
        """Ends every call that is not a request."""
        for call in tuple(self._others):
            call.end(error)
