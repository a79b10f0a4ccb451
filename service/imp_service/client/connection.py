"""A channel to one server for programs that wait in threads, with deadline, metadata and failures."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from ..pb.inference_pb2_grpc import InferenceServiceStub
from ..pb.model_pb2_grpc import ModelServiceStub
from ..pb.tokenizer_pb2_grpc import TokenizerServiceStub
from .failure import closed, failure_of
from .interrupts import Interruptible, no_call
from .patience import Patience, patience_of
from .target import Target, open_channel

Request = TypeVar("Request")
Response = TypeVar("Response")
Metadata = tuple[tuple[str, str], ...]
# How long to wait for calls whose replies nobody wants.
LAST_CALLS_SECONDS = 1.0


class Connection:
    """The first call opens the connection. `deadline` is in seconds, for each call."""

    def __init__(self, target: Target, deadline: float | None = None) -> None:
        self.channel = open_channel(target, is_spread=True)
        # Now, since gRPC must not make a stub of a channel that is closed.
        self.inference = InferenceServiceStub(self.channel)
        self.models = ModelServiceStub(self.channel)
        self.tokenizer = TokenizerServiceStub(self.channel)
        self.target = target
        self._metadata = target.call_metadata
        self._deadline = deadline
        self._started: set[grpc.Future[Any]] = set()
        # A server has answered a generation.
        self.has_answered = False
        self._is_closed = False
        # The server of the sessions, and the channels to it and to those that they left.
        self._sessions: InferenceServiceStub | None = None
        self._session_channels: list[grpc.Channel] = []
        self._lock = threading.Lock()
        self._pauses: set[threading.Event] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every call, but waits a moment for those of start()."""
        self.wait_for_started()
        with self._lock:
            self._is_closed = True
        for pause in tuple(self._pauses):
            pause.set()
        self.channel.close()
        for channel in self._session_channels:
            channel.close()

    @property
    def address(self) -> str:
        """The server, as gRPC names it."""
        return self.target.address

    @property
    def sessions(self) -> InferenceServiceStub:
        """For calls of sessions, which live on one server. Raises the failure of a closed connection."""
        if not self.target.has_several:
            return self.inference
        with self._lock:
            if self._is_closed:
                raise closed()
            if self._sessions is None:
                self._session_channels.append(open_channel(self.target, own_connection=True))
                self._sessions = InferenceServiceStub(self._session_channels[-1])
            return self._sessions

    def leave_server(self, left: InferenceServiceStub) -> None:
        """Makes the next calls of sessions on another server than `left`, if there are several. Those that run go on.

        Has no effect if a call of another session has left it before.
        """
        with self._lock:
            if self._sessions is left:
                self._sessions = None

    @property
    def has_started(self) -> bool:
        """Whether a call of start() runs."""
        return bool(self._started)

    def wait_for_started(self) -> None:
        """Waits a moment for the calls of start()."""
        deadline = time.monotonic() + LAST_CALLS_SECONDS
        for call in tuple(self._started):
            with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError):
                call.exception(timeout=max(0.0, deadline - time.monotonic()))

    def unary(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        *,
        metadata: Metadata = (),
        timeout: float | None = None,
    ) -> Response:
        """The reply. Raises CallFailure. Ctrl-C cancels the call. `timeout` replaces the connection's deadline."""
        with self._beginning():
            call = method.future(request, timeout=self.seconds(timeout), metadata=(*self._metadata, *metadata))
        try:
            with Interruptible(call.cancel):
                return call.result()
        except grpc.RpcError as error:
            raise failure_of(error, self.target) from None

    def start(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        *,
        metadata: Metadata = (),
    ) -> None:
        """Makes a call without waiting for its end. Has no effect on a closed connection."""
        try:
            call = method.future(request, timeout=self._deadline, metadata=(*self._metadata, *metadata))
        except ValueError:  # closed
            return
        self._started.add(call)  # gRPC cancels a call that nobody refers to
        call.add_done_callback(self._started.discard)

    def stream(
        self,
        method: "grpc.UnaryStreamMultiCallable[Request, Response]",
        request: Request,
        *,
        metadata: Metadata = (),
        timeout: float | None = None,
    ) -> "Replies[Response]":
        """The messages as they come."""
        with self._beginning():
            call = method(request, timeout=self.seconds(timeout), metadata=(*self._metadata, *metadata))
        return Replies(call, self.target)

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Begins a call. Raises the failure of a closed connection."""
        try:
            with Interruptible(no_call):
                yield
        except ValueError:
            if self._is_closed:
                raise closed() from None
            raise

    def pause(self, seconds: float, ended: threading.Event) -> None:
        """Waits, or until `ended` is set. Raises the failure of a closed connection."""
        self._pauses.add(ended)
        try:
            if not self._is_closed:
                ended.wait(seconds)
        finally:
            self._pauses.discard(ended)
        if self._is_closed:
            raise closed()

    def rest(self, seconds: float) -> None:
        """Waits. Raises the failure of a closed connection."""
        self.pause(seconds, threading.Event())

    def patience(self, timeout: float | None) -> Patience:
        """That of a call with so much time."""
        return patience_of(self.target, self.seconds(timeout))

    def seconds(self, timeout: float | None) -> float | None:
        """The time of a call: its own, else the connection's."""
        return self._deadline if timeout is None else timeout


class Replies(Iterator[Response]):
    """A stream of messages. Raises CallFailure. Closing it early, or Ctrl-C, cancels the call."""

    def __init__(self, call: "grpc._CallIterator[Response]", target: Target) -> None:
        self._call = call
        self._target = target

    def __next__(self) -> Response:
        try:
            with Interruptible(self._call.cancel):
                return next(self._call)
        except grpc.RpcError as error:
            raise failure_of(error, self._target) from None

    def close(self) -> None:
        with Interruptible(no_call):
            self.cancel()

    def cancel(self) -> None:
        """From any thread. Has no effect if the call has ended."""
        self._call.cancel()

    @property
    def metadata(self) -> dict[str, str | bytes]:
        """Waits for the head of the reply and returns what the server has said of the call, up to now."""
        with Interruptible(self._call.cancel):
            head = self._call.initial_metadata()
            return dict((*head, *(() if self._call.is_active() else self._call.trailing_metadata())))
