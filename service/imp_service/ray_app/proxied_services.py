"""The services of imp.v1 in Ray's gRPC proxy: passes serialized messages and restores metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from imp_service.pb import inference_pb2, model_pb2, tokenizer_pb2

SERVICES: tuple[ServiceDescriptor, ...] = (
    inference_pb2.DESCRIPTOR.services_by_name["InferenceService"],
    tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"],
    model_pb2.DESCRIPTOR.services_by_name["ModelService"],
)
# Prefix of initial metadata of imp.v1, which arrives as trailing metadata with every message.
_OURS = "imp-"


def add_services_to_server(servicer: object, server: grpc.aio.Server) -> None:
    """Called by Ray, as its option grpc_servicer_functions names it. The servicer is a placeholder of Ray."""
    for service in SERVICES:
        server.add_generic_rpc_handlers((ProxiedService(service),))


class ProxiedService(grpc.GenericRpcHandler):
    """Routes of one service; messages stay bytes, for the replica reads them."""

    def __init__(self, service: ServiceDescriptor) -> None:
        # Ray replaces the values by handlers that call a replica. It finds them by this attribute's name.
        self._method_handlers = {f"/{service.full_name}/{m.name}": _unrouted(m) for m in service.methods}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a call, None if the method belongs to another service."""
        routed: Any = self._method_handlers.get(handler_call_details.method)
        if routed is None:
            return None
        if not routed.response_streaming:
            return grpc.unary_unary_rpc_method_handler(_with_initial_metadata(routed.unary_unary))
        if routed.request_streaming:
            return grpc.stream_stream_rpc_method_handler(_without_the_end(routed.stream_stream))
        return grpc.unary_stream_rpc_method_handler(_without_the_end(routed.unary_stream))


def _unrouted(method: MethodDescriptor) -> Any:
    kinds: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return kinds[method.client_streaming, method.server_streaming](None)


def _with_initial_metadata(routed: Callable[..., Any]) -> Callable[..., Any]:
    async def answer(request: bytes, context: Any) -> bytes:
        reply: bytes = await routed(request, context)
        if context.code() in (0, grpc.StatusCode.OK):  # before it is set, and as Ray sets it
            await context.send_initial_metadata(_split(context)[0])
            context.set_trailing_metadata(_split(context)[1])
        return reply

    return answer


def _without_the_end(routed: Callable[..., Any]) -> Callable[..., Any]:
    async def answer(request: Any, context: Any) -> AsyncIterator[bytes]:
        reply_has_begun = False
        async for message in routed(request, context):
            if not message:  # the end: its status and its trailing metadata are on the context
                continue
            if not reply_has_begun:
                reply_has_begun = True
                await context.send_initial_metadata(_split(context)[0])
            yield message
        if reply_has_begun:
            context.set_trailing_metadata(_split(context)[1])

    return answer


def _split(context: Any) -> tuple[list[Any], list[Any]]:
    """The initial and the trailing metadata of a call whose reply has begun."""
    pairs = list(context.trailing_metadata())
    return [pair for pair in pairs if pair[0].startswith(_OURS)], [p for p in pairs if not p[0].startswith(_OURS)]
