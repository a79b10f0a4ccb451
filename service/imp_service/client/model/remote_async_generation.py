"""One generation of a server for a task of asyncio. No thread waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from ...api.replies import GenerationResult, Reply, progress_text
from ..async_joined_replies import AsyncJoinedReplies
from ..messages.errors import translating_call_failures
from .reception import Reception


class AsyncGeneration(AsyncIterator[Reply]):
    """The replies of a generation: `Started`, `Chunk`s, and one `Finished` for each sequence. Begins when it is read.

    If the server goes away, the generation goes on where it was, with the same tokens, when it is back or elsewhere.

    Cancelling the task, leaving an `async with` block early, or dropping it cancels the call; the server frees its
    memory within one step.
    """

    def __init__(self, begin: Callable[[], Awaitable[AsyncJoinedReplies]], reception: Reception) -> None:
        self._begin = begin
        self._messages: AsyncJoinedReplies | None = None
        self._reception = reception
        self._is_over = False

    async def __anext__(self) -> Reply:
        if self._is_over:
            raise StopAsyncIteration
        try:
            with translating_call_failures():
                reply = await self._next()
        except BaseException:
            self._leave()
            raise
        if reply is None:
            self._is_over = True
            raise StopAsyncIteration
        return reply

    def __del__(self) -> None:
        self._reception.is_left = True  # its messages cancel the call

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        is_open = not self._is_over
        text = progress_text(self._reception.replies, is_open=is_open, result="(await result())")
        return f"<AsyncGeneration: {text}>"

    async def result(self) -> GenerationResult:
        """Waits for the end and returns the whole output, with what was read before."""
        async for _ in self:
            pass
        return self._reception.result()

    async def results(self) -> list[GenerationResult]:
        """Waits for the end and returns the output of each sequence."""
        async for _ in self:
            pass
        return self._reception.results()

    async def aclose(self) -> None:
        """Cancels what still runs. Replies not yet read are dropped."""
        self._leave()

    async def _next(self) -> Reply | None:
        """The next reply; None after the last."""
        if self._messages is None:
            self._messages = await self._begin()
        async for message in self._messages:
            self._reception.n_resumed = self._messages.n_resumed
            reply = self._reception.take(message)
            if reply is not None:
                return reply
        self._reception.is_whole = True
        return None

    def _leave(self) -> None:
        self._is_over = self._reception.is_left = True
        if self._messages is not None:
            self._messages.cancel()
