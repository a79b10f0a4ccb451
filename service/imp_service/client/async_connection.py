"""A channel to one server for tasks of one event loop, with deadline, metadata and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse
from ..pb.inference_pb2_grpc import InferenceServiceStub
from ..pb.model_pb2_grpc import ModelServiceStub
from ..pb.tokenizer_pb2_grpc import TokenizerServiceStub
from .connection import LAST_CALLS_SECONDS, Metadata
from .failure import CallFailure, closed, failure_of
from .patience import Patience, patience_of
from .target import ACKNOWLEDGE, SERVICE, Target, open_async_channel

if TYPE_CHECKING:
    from ..pb.inference_pb2_grpc import InferenceServiceAsyncStub
    from ..pb.model_pb2_grpc import ModelServiceAsyncStub
    from ..pb.tokenizer_pb2_grpc import TokenizerServiceAsyncStub

Request = TypeVar("Request")
Response = TypeVar("Response")


class AsyncConnection:
    """The first call opens the connection. `deadline` is in seconds, for each call."""

    def __init__(self, target: Target, deadline: float | None = None, *, own_connection: bool = False) -> None:
        """With `own_connection` it does not share connections with others of its kind."""
        self.target = target
        self._metadata = target.call_metadata
        self._deadline = deadline
        self._has_own_connection = own_connection
        self._channel: grpc.aio.Channel | None = None
        # The server of the sessions, and the channels to it and to those that they left.
        self._sessions: InferenceServiceAsyncStub | None = None
        self._session_channels: list[grpc.aio.Channel] = []
        # A server has answered a generation.
        self.has_answered = False
        self._is_closed = False
        self._pauses: set[asyncio.Event] = set()
        self._started: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The server, as gRPC names it."""
        return self.target.address

    @property
    def channel(self) -> grpc.aio.Channel:
        """A channel belongs to the event loop that runs when it is made, so the first call makes it."""
        if self._is_closed:
            raise closed()
        if self._channel is None:
            self._channel = open_async_channel(self.target, is_spread=True, own_connection=self._has_own_connection)
        return self._channel

    @cached_property
    def inference(self) -> InferenceServiceAsyncStub:
        return _inference(self.channel)

    @property
    def sessions(self) -> InferenceServiceAsyncStub:
        """For calls of sessions, which live on one server. Raises the failure of a closed connection."""
        if not self.target.has_several:
            return self.inference
        if self._is_closed:
            raise closed()
        if self._sessions is None:
            self._session_channels.append(open_async_channel(self.target, own_connection=True))
            self._sessions = _inference(self._session_channels[-1])
        return self._sessions

    def leave_server(self, left: InferenceServiceAsyncStub) -> None:
        """Makes the next calls of sessions on another server than `left`, if there are several. Those that run go on.

        Has no effect if a call of another session has left it before.
        """
        if self._sessions is left:
            self._sessions = None

    @cached_property
    def models(self) -> ModelServiceAsyncStub:
        return ModelServiceStub(self.channel)

    @cached_property
    def tokenizer(self) -> TokenizerServiceAsyncStub:
        return TokenizerServiceStub(self.channel)

    async def close(self) -> None:
        """Ends every call, but waits a moment for those of start()."""
        await self.wait_for_started()
        self._is_closed = True
        for pause in self._pauses:
            pause.set()
        channels = [*filter(None, (self._channel,)), *self._session_channels]
        self._channel, self._session_channels = None, []
        for channel in channels:
            await channel.close()

    @property
    def has_started(self) -> bool:
        """Whether a call of start() runs."""
        return bool(self._started)

    async def wait_for_started(self) -> None:
        """Waits a moment for the calls of start()."""
        if self._started:
            await asyncio.wait(self._started, timeout=LAST_CALLS_SECONDS)

    async def unary(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        metadata: Metadata = (),
        timeout: float | None = None,
    ) -> Response:
        """The reply. Raises CallFailure. Cancelling the task cancels the call."""
        if self._is_closed:
            raise closed()
        with self.failures():
            return await method(request, timeout=self.seconds(timeout), metadata=(*self._metadata, *metadata))

    def start(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        metadata: Metadata = (),
    ) -> None:
        """Makes a call without waiting for its end."""

        async def call() -> None:
            with suppress(CallFailure):
                await self.unary(method, request, metadata=metadata)

        task = asyncio.get_running_loop().create_task(call())
        self._started.add(task)  # a loop refers to its tasks weakly
        task.add_done_callback(self._started.discard)

    def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        *,
        metadata: Metadata = (),
        timeout: float | None = None,
    ) -> AsyncReplies[Response]:
        """The messages as they come."""
        if self._is_closed:
            raise closed()
        call = method(request, timeout=self.seconds(timeout), metadata=(*self._metadata, *metadata))
        return AsyncReplies(call, self)

    async def pause(self, seconds: float, ended: asyncio.Event) -> None:
        """Waits, or until `ended` is set. Raises the failure of a closed connection."""
        self._pauses.add(ended)
        try:
            if not self._is_closed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), seconds)
        finally:
            self._pauses.discard(ended)
        if self._is_closed:
            raise closed()

    async def rest(self, seconds: float) -> None:
        """Waits. Raises the failure of a closed connection."""
        await self.pause(seconds, asyncio.Event())

    def patience(self, timeout: float | None) -> Patience:
        """That of a call with so much time."""
        return patience_of(self.target, self.seconds(timeout))

    def seconds(self, timeout: float | None) -> float | None:
        """The time of a call: its own, else the connection's."""
        return self._deadline if timeout is None else timeout

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Raises what gRPC raises as CallFailure."""
        try:
            yield
        except grpc.RpcError as error:
            raise failure_of(error, self.target) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise closed() from None  # gRPC ended the call, and nobody cancelled the task


def _inference(channel: grpc.aio.Channel) -> InferenceServiceAsyncStub:
    """Where a call of Generate asks for a sign of its server, gRPC begins to wait for the head before it sends.

    Otherwise it begins once the request is sent, and loses a head that comes together with the end.
    """
    stub = InferenceServiceStub(channel)
    at_once = stub.Generate
    last = channel.stream_stream(f"/{SERVICE}/Generate", GenerateRequest.SerializeToString, GenerateResponse.FromString)

    def generate(request: GenerateRequest, *, timeout: float | None, metadata: Metadata) -> Any:
        async def requests() -> AsyncIterator[GenerateRequest]:
            yield request

        if ACKNOWLEDGE[0] in metadata:
            return last(requests(), timeout=timeout, metadata=metadata)
        return at_once(request, timeout=timeout, metadata=metadata)

    stub.Generate = generate  # type: ignore[assignment]
    return stub


class AsyncReplies(AsyncIterator[Response]):
    """A stream of messages. Raises CallFailure. Dropping it, or cancelling the task that reads it, cancels the call."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[Request, Response], connection: AsyncConnection) -> None:
        self._call = call
        self._connection = connection

    async def __anext__(self) -> Response:
        with self._connection.failures():
            message = await self._call.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return cast(Response, message)

    def __del__(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Has no effect if the call has ended."""
        self._call.cancel()
