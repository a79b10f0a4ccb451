"""Calls any method by its path with raw bytes, and returns its replies and its status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from imp_service.pb import admin_pb2, inference_pb2, model_pb2, tokenizer_pb2
from support.calls.status_details import Details, read_details
from support.run.patience import HANGS_AFTER

Metadata = Sequence[tuple[str, str | bytes]]
SERVICES: dict[str, ServiceDescriptor] = {
    service.full_name: service
    for file in (inference_pb2, model_pb2, tokenizer_pb2, admin_pb2, health_pb2, channelz_pb2, reflection_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
}
INFERENCE, HEALTH = "imp.v1.InferenceService", "grpc.health.v1.Health"
ADMIN, CHANNELZ = "imp.v1.AdminService", "grpc.channelz.v1.Channelz"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


@dataclass(frozen=True)
class Ended:
    """A finished call."""

    code: str
    message: str
    details: Details
    replies: list[bytes]
    initial: dict[str, str | bytes]
    trailing: dict[str, str | bytes]

    @property
    def reason(self) -> str:
        """The reason from the error table; empty if the status has none."""
        return self.details.reason


def path_of(method: MethodDescriptor) -> str:
    """Returns the path of a method in gRPC."""
    return f"/{method.containing_service.full_name}/{method.name}"


def methods_of(*services: str) -> list[str]:
    """Returns the paths of all methods of these services; without names, of all known services."""
    return [path_of(method) for name in services or SERVICES for method in SERVICES[name].methods]


def call(
    channel: grpc.Channel, method: str, content: bytes = b"", metadata: Metadata = (), *, n_replies: int | None = None
) -> Ended:
    """Sends one message and half-closes, for unary and streaming methods alike; cancels after `n_replies`."""
    stream = channel.stream_stream(method)(iter((content,)), metadata=metadata, timeout=HANGS_AFTER)
    replies: list[bytes] = []
    try:
        for reply in _some(stream, n_replies):
            replies.append(reply)
    except grpc.RpcError:
        pass
    stream.cancel()
    trailing = tuple(stream.trailing_metadata() or ())
    return Ended(
        stream.code().name,
        stream.details() or "",
        read_details(trailing),
        replies,
        dict(stream.initial_metadata() or ()),
        dict(trailing),
    )


def _some(stream: Iterator[bytes], n: int | None) -> Iterator[bytes]:
    if n is None:
        yield from stream
    else:
        for _ in range(n):
            yield next(stream)


def served_names(channel: grpc.Channel) -> list[str]:
    """Returns the services that reflection lists."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    ended = call(channel, f"/{REFLECTION}/ServerReflectionInfo", request.SerializeToString())
    assert ended.code == "OK", ended
    reply = reflection_pb2.ServerReflectionResponse.FromString(ended.replies[0])
    return sorted(service.name for service in reply.list_services_response.service)


def is_served(channel: grpc.Channel, method: str) -> bool:
    """Returns whether the server has a method at this path."""
    ended = call(channel, method, b"\xff\xff", n_replies=1)
    return not (ended.code == "UNIMPLEMENTED" and ended.message == "Method not found!")
