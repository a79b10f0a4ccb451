"""A generation for tasks of one event loop: where a call breaks, another goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from ..pb.inference_pb2 import GenerateResponse
from .failure import CallFailure, cancelled
from .joined_stream import JoinedStream
from .patience import DRAINING
from .repeated_stream import RepeatedStream
from .stream_order import StreamBroken

if TYPE_CHECKING:
    from ..pb.inference_pb2 import GenerateRequest
    from .async_connection import AsyncConnection, AsyncReplies
    from .connection import Metadata


class AsyncJoinedReplies(AsyncIterator[GenerateResponse]):
    """The messages of a generation, over all its calls, whose time is `timeout`. Raises CallFailure and StreamBroken.

    The first call begins at once. Dropping it, or cancelling the task that reads it, cancels the call.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        request: GenerateRequest,
        *,
        metadata: Metadata = (),
        timeout: float | None = None,
        reopen: Callable[[CallFailure, float | None], Awaitable[str]] | None = None,
    ) -> None:
        """`reopen`: opens the session of a generation again, after a failure and in so much time, and returns its name.

        Without it, a generation of a session does not go on.
        """
        self._connection = connection
        self._reopen = reopen
        patience, is_known = connection.patience(timeout), connection.has_answered
        self._stream: JoinedStream | RepeatedStream = (
            JoinedStream(request, connection.target, patience, is_known=is_known)
            if reopen is None
            else RepeatedStream(request, patience)
        )
        self._metadata = metadata
        # Set when it was cancelled.
        self._ended = asyncio.Event()
        self._replies = self._call()

    async def __anext__(self) -> GenerateResponse:
        while True:
            try:
                message = self._stream.take(await anext(self._replies))
            except StopAsyncIteration:
                self._stream.end()
                raise
            except StreamBroken:
                self.cancel()
                raise
            except CallFailure as failure:
                if not await self._goes_on(failure):
                    raise StopAsyncIteration from None
            else:
                self._connection.has_answered = True
                if message is not None:
                    return message

    @property
    def n_resumed(self) -> int:
        """How often another call went on."""
        return self._stream.n_resumed

    def cancel(self) -> None:
        """Has no effect if the last call has ended."""
        self._ended.set()
        self._replies.cancel()

    async def _goes_on(self, failure: CallFailure) -> bool:
        """Begins the next call; False if all had come. Raises the failure that ends the stream."""
        self._require_open()
        wait = self._stream.failed(failure)
        if wait is None:
            return False
        if failure.reason == DRAINING:
            self._connection.leave_server(self._stub)
        await self._connection.pause(wait, self._ended)
        self._require_open()
        if isinstance(self._stream, RepeatedStream) and self._stream.needs_session and self._reopen is not None:
            self._stream.renamed(await self._reopen(failure, self._stream.time_left))
            self._require_open()
        self._replies = self._call()
        return True

    def _require_open(self) -> None:
        if self._ended.is_set():
            raise cancelled() from None

    def _call(self) -> AsyncReplies[GenerateResponse]:
        stream, connection = self._stream, self._connection
        self._stub = connection.sessions if stream.is_of_session else connection.inference
        metadata = (*self._metadata, *stream.metadata)
        return connection.stream(self._stub.Generate, stream.request, metadata=metadata, timeout=stream.time_left)
