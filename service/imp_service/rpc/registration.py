"""The one path of a call: handlers are built from the descriptors, and each is wrapped the same way.

A servicer has a coroutine `method(request, call)` for each method of its service: it returns the reply, or writes
replies with `call.write` where the method streams. Whatever it raises becomes one status.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from imp_service.rpc.call import Call
from imp_service.rpc.statuses import failure_of
from imp_service.serving.host import Host

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Call], Awaitable[Message | None]]


class CallPath:
    """What every call goes through before and after its servicer."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def register(self, server: grpc.aio.Server, service: ServiceDescriptor, servicer: object) -> None:
        """Serves every method of `service`; each must be there under its own name."""
        handlers = {method.name: self._handler(method, getattr(servicer, method.name)) for method in service.methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))

    def _handler(self, descriptor: MethodDescriptor, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        name = f"/{descriptor.containing_service.full_name}/{descriptor.name}"

        async def answer_unary(request: Any, context: Context) -> Message | None:
            return await self._run(name, method, request, context, is_unary=True)

        async def answer_stream(request: Any, context: Context) -> None:
            await self._run(name, method, request, context, is_unary=False)

        kinds: dict[tuple[bool, bool], tuple[Callable[..., Any], Callable[..., Any]]] = {
            (False, False): (grpc.unary_unary_rpc_method_handler, answer_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, answer_stream),
            (True, True): (grpc.stream_stream_rpc_method_handler, answer_stream),
        }
        make, behavior = kinds[descriptor.client_streaming, descriptor.server_streaming]
        handler: grpc.RpcMethodHandler[Any, Any] = make(
            behavior,
            request_deserializer=GetMessageClass(descriptor.input_type).FromString,
            response_serializer=GetMessageClass(descriptor.output_type).SerializeToString,
        )
        return handler

    async def _run(
        self, name: str, method: Method, request: Message | AsyncIterator[Message], context: Context, *, is_unary: bool
    ) -> Message | None:
        call = Call(
            method=name,
            context=context,
            instance_id=self._host.instance_id,
            request_id=secrets.token_hex(8),
            peer=context.peer(),
        )
        try:
            reply = await method(request, call)
            if is_unary:
                await call.admit()
            return reply
        except asyncio.CancelledError:
            raise
        except Exception as error:
            failure = failure_of(error, request_id=call.request_id)
            trailing = failure.trailing_metadata()
            if not call.is_admitted:
                trailing = (*trailing, *call.identity)
            await context.abort(failure.code, failure.message, trailing)
