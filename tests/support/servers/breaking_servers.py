"""Scripted servers that go away in the middle of a stream, and go on with it where its client asks them to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse
from support.servers.scripted_server import behind, refuse, resumable_story

STORY = resumable_story(n_sequences=2)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def broken(context: grpc.ServicerContext, reason: str = "DRAINING", retry: float | None = 0.0) -> None:
    """Ends a call as a server does that goes away."""
    told = [] if retry is None else [RetryInfo(retry_delay=Duration(seconds=int(retry), nanos=int(retry % 1 * 1e9)))]
    code = grpc.StatusCode.INTERNAL if reason in ("DEVICE_FAULT", "STALLED", "BUG") else UNAVAILABLE
    refuse(context, code, "gone", ErrorInfo(reason=reason, domain="imp.v1"), *told)


class BreakingServers:
    """Servers that break off after some messages, one number for each call, and are whole after the last."""

    def __init__(self, *cuts: int, messages: Sequence[GenerateResponse] = STORY, end: Any = broken) -> None:
        self._cuts = iter(cuts)
        self._messages = messages
        self._end = end
        self.asked: list[GenerateRequest] = []
        self.metadata: list[dict[str, Any]] = []

    def __call__(self, request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
        self.asked.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        rest = behind(self._messages, request.resume) if request.HasField("resume") else self._messages
        cut = next(self._cuts, None)
        yield from rest[:cut]
        if cut is not None:
            self._end(context)
