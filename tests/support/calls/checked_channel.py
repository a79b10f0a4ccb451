"""A channel that checks the status and the stream of every call, whatever stub uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from imp_service.pb import inference_pb2 as pb
from support.calls.status_checker import StatusViolation, check_status
from support.calls.stream_checker import Detokenize, StreamChecker, StreamViolation, check_unary
from support.run.findings import FINDINGS

GENERATE = "/imp.v1.InferenceService/Generate"
GENERATE_UNARY = "/imp.v1.InferenceService/GenerateUnary"


def noted(check: Callable[[], None]) -> None:
    """Runs a check. Records a violation for the fixture too, because a test may not see another thread's exception."""
    try:
        check()
    except (StatusViolation, StreamViolation) as violation:
        FINDINGS.add(str(violation))
        raise


class CheckedStream:
    """Wraps a streaming call and checks each message as it is read; all else is forwarded to the call."""

    def __init__(self, call: Any, checker: StreamChecker) -> None:
        self._call = call
        self.checker = checker

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            message = next(self._call)
        except StopIteration:
            if not self.checker.is_ended:
                noted(self.checker.end_ok)
            raise
        except grpc.RpcError:
            self.checker.end_failed()
            raise
        noted(lambda: self.checker.feed(message))
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


class CheckingInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Intercepts every call of a channel."""

    def __init__(self, detokenize: Detokenize | None) -> None:
        self._detokenize = detokenize

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        call = continuation(details, request)
        if details.method == GENERATE_UNARY:
            call.add_done_callback(lambda ended: self._check_unary(request, ended))
        call.add_done_callback(_check_end)
        return call

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        call = continuation(details, request)
        call.add_done_callback(_check_end)
        # A raw call with invalid bytes gets no stream to check.
        if not isinstance(request, pb.GenerateRequest):
            return call
        return CheckedStream(call, StreamChecker(request, self._detokenize))

    def intercept_stream_stream(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
        call = continuation(details, request_iterator)
        call.add_done_callback(_check_end)
        return call

    def _check_unary(self, request: pb.GenerateUnaryRequest, ended: Any) -> None:
        if ended.code() is grpc.StatusCode.OK:
            noted(lambda: check_unary(request.request, ended.result(), self._detokenize))


def _check_end(ended: Any) -> None:
    noted(lambda: check_status(ended.code(), ended.details(), ended.trailing_metadata() or ()))


def checked(channel: grpc.Channel, detokenize: Detokenize | None = None) -> grpc.Channel:
    """Returns the channel, with every call on it checked."""
    found: grpc.Channel = grpc.intercept_channel(channel, CheckingInterceptor(detokenize))
    return found
