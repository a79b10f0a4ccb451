"""A client without stubs: it learns services, methods and messages by reflection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support.patience import HANGS_AFTER

Json = dict[str, Any]


class ReflectingClient:
    """A client of one server that works like grpcurl."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def services(self) -> list[ServiceDescriptor]:
        """Returns every service that the server names, with descriptors of its methods and messages."""
        return [self._pool.FindServiceByName(name) for name in self._database.get_services()]

    def call(self, method: MethodDescriptor, requests: Sequence[Json]) -> list[Json]:
        """Returns the replies of any kind of method. Takes one request unless the method takes a stream."""
        kinds = {
            (False, False): self.channel.unary_unary,
            (False, True): self.channel.unary_stream,
            (True, False): self.channel.stream_unary,
            (True, True): self.channel.stream_stream,
        }
        request_class = GetMessageClass(method.input_type)
        multi_callable = kinds[method.client_streaming, method.server_streaming](
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=request_class.SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        messages = [json_format.ParseDict(request, request_class()) for request in requests]
        # A watch ends only when its client cancels it; this client needs only its first message.
        is_endless = method.name.startswith("Watch") or method.name == "Watch"
        call = multi_callable(iter(messages) if method.client_streaming else messages[0], timeout=HANGS_AFTER)
        replies: Iterator[Any] = call if method.server_streaming else iter([call])
        read = [next(replies)] if is_endless else list(replies)
        if is_endless:
            call.cancel()
        return [json_format.MessageToDict(reply, preserving_proto_field_name=True) for reply in read]
