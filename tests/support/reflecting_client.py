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

Json = dict[str, Any]


class ReflectingClient:
    """One server, as a tool such as grpcurl sees it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def services(self) -> list[ServiceDescriptor]:
        """Every service that the server names, with its methods and their messages described."""
        return [self._pool.FindServiceByName(name) for name in self._database.get_services()]

    def call(self, method: MethodDescriptor, requests: Sequence[Json]) -> list[Json]:
        """The replies, whatever kind of method it is; one request where it takes no stream."""
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
        # A watch ends when its client has seen enough: what it says at once is what is asked for here.
        is_endless = method.name.startswith("Watch") or method.name == "Watch"
        call = multi_callable(iter(messages) if method.client_streaming else messages[0], timeout=60)
        replies: Iterator[Any] = call if method.server_streaming else iter([call])
        read = [next(replies)] if is_endless else list(replies)
        if is_endless:
            call.cancel()
        return [json_format.MessageToDict(reply, preserving_proto_field_name=True) for reply in read]
