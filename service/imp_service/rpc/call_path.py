"""The handlers of gRPC's methods, which parse messages and run every call on the one path that calls take.

A servicer has a coroutine `method(request, call)` for each method of its service. It returns the reply, or sends
replies with `call.write` if the method streams. Handlers are built from the descriptors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from imp_service.api.errors import invalid
from imp_service.core.reserve import READING_CALLS, READING_HEALTH
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.encoded import Encoded, Reply
from imp_service.rpc.image_messages import has_images, may_have_images
from imp_service.rpc.message_gate import MessageGate
from imp_service.rpc.orca import ORCA_KEY, orca_report
from imp_service.rpc.policies import policy_of
from imp_service.rpc.statuses import TrailingMetadata, message_of, status_code, trailing_metadata
from imp_service.serving.call_path import Arrival, CallPath
from imp_service.serving.errors.error_table import MESSAGE_TOO_LARGE
from imp_service.serving.errors.failure import Failure
from imp_service.serving.errors.failures import drop_frames
from imp_service.serving.message_memory import MessageLimit
from imp_service.serving.refusal import Refusal
from imp_service.serving.security.authentication import NO_POLICY, Authentication, Policy
from imp_service.serving.server_state import ServerState
from imp_service.telemetry import Method as CountedMethod
from imp_service.telemetry.method import MethodType

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Method = Callable[[Any, GrpcCall], Awaitable[Reply | None]]
Answer = Callable[[GrpcCall], Awaitable[Reply | None]]
Parse = Callable[[bytes, GrpcCall], Message]
# (client streaming, server streaming) -> the method's type in metrics.
KINDS: dict[tuple[bool, bool], MethodType] = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}


class GrpcCallPath:
    """Makes the handlers of services, which run every call the same way."""

    def __init__(self, state: ServerState, authentication: Authentication) -> None:
        self._state = state
        self._path = CallPath(state, authentication)
        self._methods: set[str] = set()
        # Health never waits for the requests of others.
        self._gate, self._health_gate = MessageGate(READING_CALLS), MessageGate(READING_HEALTH)

    def register(self, server: grpc.aio.Server, service: ServiceDescriptor, servicer: object) -> None:
        """Serves the methods of `service`. The servicer has a coroutine of each method's name.

        A method that its `UNIMPLEMENTED` names is left to gRPC, which answers with that status.
        """
        left_out = getattr(servicer, "UNIMPLEMENTED", ())
        handlers = {
            method.name: self._handler(method, getattr(servicer, method.name))
            for method in service.methods
            if method.name not in left_out
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))

    def handles(self, method: str) -> bool:
        """Whether this path serves a method."""
        return method in self._methods

    def refusal_handler(self, method: str, error: Exception) -> Handler:
        """A handler that fails a call of any method type, before its first message."""

        async def refuse(_: object, context: Context) -> None:
            arrival = _arrival(method, NO_POLICY, "", context)
            refusing = self._path.refuse(arrival, self._transport(NO_POLICY, context), error)
            del context
            await _without_frames(refusing)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _handler(self, descriptor: MethodDescriptor, method: Method) -> Handler:
        service = descriptor.containing_service.full_name
        policy, _ = policy_of(f"/{service}/{descriptor.name}")
        kind = descriptor.client_streaming, descriptor.server_streaming
        counted = CountedMethod(service, descriptor.name, KINDS[kind], policy.is_request, policy.is_health)
        self._state.telemetry.add_method(counted)
        self._methods.add(counted.path)
        # Messages are parsed here, so that a malformed one fails like any other bad request.
        parse = self._parser(descriptor)

        gate = self._health_gate if policy.is_health else self._gate

        async def read_one(call: GrpcCall) -> Reply | None:
            content = await gate.read(call)
            if content is grpc.aio.EOF:
                raise invalid("request", "found no message, expected one")
            await call.acknowledged()
            reply = await method(parse(content, call), call)
            return None if reply is None else self._held(reply)

        # Registered as a stream, since one message or many look the same on the wire. So the checks of the caller run
        # before the message is read, and a call without a message ends: grpc.aio would leave it open.
        async def answer_one(_: object, context: Context) -> bytes | None:
            running = self._run(counted, policy, read_one, context)
            del _, context
            return await _without_frames(running)

        async def answer_many(contents: AsyncIterator[bytes], context: Context) -> None:
            async def read_all(call: GrpcCall) -> Reply | None:
                await call.acknowledged()
                return await method(_each_parsed(parse, contents, call), call)

            running = self._run(counted, policy, read_all, context)
            del read_all, context
            await _without_frames(running)

        makers: dict[tuple[bool, bool], tuple[Callable[..., Any], Callable[..., Any]]] = {
            (False, False): (grpc.stream_unary_rpc_method_handler, answer_one),
            (False, True): (grpc.stream_stream_rpc_method_handler, answer_one),
            (True, True): (grpc.stream_stream_rpc_method_handler, answer_many),
        }
        make, behavior = makers[kind]
        return cast(Handler, make(behavior))

    def _held(self, reply: Reply) -> Encoded:
        """A reply of a call that does not stream. It counts as a message until gRPC has sent it."""
        encoded = Encoded(reply.SerializeToString())
        message = self._state.sending.message()
        message.grow(len(encoded.content))
        sending = asyncio.current_task()
        assert sending is not None  # narrows: a handler runs in a task, which ends once the reply is sent
        sending.add_done_callback(lambda _: message.close())
        return encoded

    def _parser(self, descriptor: MethodDescriptor) -> Parse:
        from_string = GetMessageClass(descriptor.input_type).FromString
        takes_images = may_have_images(descriptor.input_type)

        def parse(content: bytes, call: GrpcCall) -> Message:
            call.n_request_bytes = len(content)
            check_size(len(content), self._state.message_limit(has_images=takes_images))
            try:
                message = from_string(content)
            except DecodeError:
                raise invalid("request", "the bytes are not a valid message of this method") from None
            if len(content) > (limit := self._state.message_limit()).n_bytes and not has_images(message):
                check_size(len(content), limit)
            return message

        return parse

    async def _run(self, method: CountedMethod, policy: Policy, answer: Answer, context: Context) -> bytes | None:
        arrival = _arrival(method.path, policy, method.service, context)
        reply = await self._path.run(arrival, self._transport(policy, context), answer)
        return None if reply is None else reply.SerializeToString()

    def _transport(self, policy: Policy, context: Context) -> GrpcTransport:
        return GrpcTransport(context, self._load if policy.is_request else _no_load)

    def _load(self) -> TrailingMetadata:
        """The load, for load balancing in the client."""
        state = self._state
        return ((ORCA_KEY, orca_report(state.utilization.snapshot(), state.settings.scheduler.max_running)),)


class GrpcTransport:
    """Ends one call with a status. `load` gives the metadata that each status has."""

    def __init__(self, context: Context, load: Callable[[], TrailingMetadata]) -> None:
        self.make = partial(GrpcCall, context=context)
        self._load = load

    async def succeed(self, call: GrpcCall) -> None:
        """Sets what is sent after the last message."""
        await call.begin_reply()
        call.context.set_trailing_metadata((*call.late_identity, *self._load()))

    async def fail(self, call: GrpcCall, failure: Failure) -> None:
        """Sends the status. Raises gRPC's AbortError."""
        trailing = (*trailing_metadata(failure), *self._load(), *call.late_identity)
        await call.abort(status_code(failure), message_of(failure), trailing)


def check_size(n_bytes: int, limit: MessageLimit) -> None:
    """Raises MESSAGE_TOO_LARGE for a request with more bytes than the limit."""
    if n_bytes > limit.n_bytes:
        words = f"the request has {n_bytes} bytes, at most {limit} are allowed"
        details = {"message_bytes": str(n_bytes), "max_message_bytes": str(limit.n_bytes)}
        raise Refusal(MESSAGE_TOO_LARGE, words, details)


def _no_load() -> TrailingMetadata:
    return ()


def _arrival(method: str, policy: Policy, service: str, context: Context) -> Arrival:
    return Arrival(method, policy, service, context.peer(), tuple(context.invocation_metadata() or ()))


async def _without_frames(running: Awaitable[T]) -> T:
    """The result of a call. If the call is aborted, drops the traceback of the exception.

    The context refers to that exception, and the frames of its traceback to the context. The caller must not hold a
    reference to the context.
    """
    try:
        return await running
    except grpc.aio.AbortError as aborted:
        drop_frames(aborted)
        raise


async def _each_parsed(parse: Parse, contents: AsyncIterator[bytes], call: GrpcCall) -> AsyncIterator[Message]:
    async for content in contents:
        yield parse(content, call)
