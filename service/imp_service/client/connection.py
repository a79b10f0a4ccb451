"""A channel to one server, for commands that make one call at a time: deadline, metadata and failures in one place."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar

import grpc

from imp_service.client.failure import failure_of
from imp_service.client.target import Target, open_channel

Request = TypeVar("Request")
Response = TypeVar("Response")


class Connection:
    """Opened by its first call. `deadline` is in seconds, of each call."""

    def __init__(self, target: Target, deadline: float | None = None) -> None:
        self.channel = open_channel(target)
        self._metadata = target.call_metadata
        self._deadline = deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def unary(self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request) -> Response:
        """The reply; CallFailure where there is none. Whatever interrupts the wait cancels the call."""
        call = method.future(request, timeout=self._deadline, metadata=self._metadata)
        try:
            return call.result()
        except grpc.RpcError as error:
            raise failure_of(error) from None
        finally:
            call.cancel()  # nothing where the call has ended

    def stream(
        self, method: "grpc.UnaryStreamMultiCallable[Request, Response]", request: Request
    ) -> "Replies[Response]":
        """The messages as they come."""
        return Replies(method(request, timeout=self._deadline, metadata=self._metadata))


class Replies(Iterator[Response]):
    """A stream of messages; CallFailure where it ends with a status. Closing it before its end cancels the call."""

    def __init__(self, call: "grpc._CallIterator[Response]") -> None:
        self._call = call

    def __next__(self) -> Response:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            raise failure_of(error) from None

    def close(self) -> None:
        self._call.cancel()  # nothing where the call has ended

    @property
    def metadata(self) -> dict[str, str | bytes]:
        """What the server sent before the first message; waits for it."""
        return dict(self._call.initial_metadata())
