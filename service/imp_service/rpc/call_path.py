"""The path that every call takes: authentication, metadata, phase, servicer, status, metrics.

A servicer has a coroutine `method(request, call)` for each method of its service. It returns the reply, or sends
replies with `call.write` if the method streams. Handlers are built from the descriptors. Every exception becomes one
status.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from imp_service.config.derived import approximations
from imp_service.generation.validate import FieldsInvalid, invalid
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.replies.encoded import Reply
from imp_service.rpc.replies.orca import ORCA_KEY, orca_report
from imp_service.rpc.replies.statuses import TrailingMetadata, status_code, trailing_metadata
from imp_service.serving.errors.error_table import DRAINING, MESSAGE_TOO_LARGE
from imp_service.serving.errors.failures import drop_frames, reported_failure
from imp_service.serving.host import Host
from imp_service.serving.refusal import Refusal
from imp_service.serving.request_metadata import RequestMetadata, read_request_metadata
from imp_service.serving.security.authentication import NO_POLICY, POLICIES, Authentication, Metadata, Policy
from imp_service.telemetry import Method as CountedMethod
from imp_service.telemetry.method import MethodType

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Method = Callable[[Any, GrpcCall], Awaitable[Reply | None]]
Parse = Callable[[bytes, GrpcCall], Message]
# (client streaming, server streaming) -> the method's type in metrics.
KINDS: dict[tuple[bool, bool], MethodType] = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}


class CallPath:
    """Makes the handlers of services, which run every call the same way."""

    def __init__(self, host: Host, authentication: Authentication) -> None:
        self._host = host
        self._authentication = authentication
        self._methods: set[str] = set()
        self._approximations = approximations(host.settings)

    def register(self, server: grpc.aio.Server, service: ServiceDescriptor, servicer: object) -> None:
        """Serves every method of `service`. The servicer must have a coroutine of each method's name."""
        policy = POLICIES[service.full_name]
        handlers = {
            method.name: self._handler(method, policy, getattr(servicer, method.name)) for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))

    def handles(self, method: str) -> bool:
        """Whether this path serves a method."""
        return method in self._methods

    def refusal_handler(self, method: str, error: Exception) -> Handler:
        """A handler that fails a call of any method type, before its first message."""

        async def refuse(_: object, context: Context) -> None:
            failing = self._fail(self._begin(method, context, RequestMetadata(), NO_POLICY), error, NO_POLICY)
            del context
            await _without_frames(failing)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _handler(self, descriptor: MethodDescriptor, policy: Policy, method: Method) -> Handler:
        service = descriptor.containing_service.full_name
        kind = descriptor.client_streaming, descriptor.server_streaming
        counted = CountedMethod(service, descriptor.name, KINDS[kind], policy.is_request, policy.is_health)
        self._host.telemetry.add_method(counted)
        self._methods.add(counted.path)
        # Messages are parsed here, so that a malformed one fails like any other bad request.
        parse = self._parser(descriptor)

        async def read_one(call: GrpcCall) -> Reply | None:
            content = await call.context.read()
            if content is grpc.aio.EOF:
                raise invalid("request", "found no message, expected one")
            return await method(parse(content, call), call)

        # Registered as a stream, since one message or many look the same on the wire. So the checks of the caller run
        # before the message is read, and a call without a message ends: grpc.aio would leave it open.
        async def answer_one(_: object, context: Context) -> bytes | None:
            running = self._run(counted.path, policy, read_one, context)
            del _, context
            return await _without_frames(running)

        async def answer_many(contents: AsyncIterator[bytes], context: Context) -> None:
            def read_all(call: GrpcCall) -> Awaitable[Reply | None]:
                return method(_each_parsed(parse, contents, call), call)

            running = self._run(counted.path, policy, read_all, context)
            del read_all, context
            await _without_frames(running)

        makers: dict[tuple[bool, bool], tuple[Callable[..., Any], Callable[..., Any]]] = {
            (False, False): (grpc.stream_unary_rpc_method_handler, answer_one),
            (False, True): (grpc.stream_stream_rpc_method_handler, answer_one),
            (True, True): (grpc.stream_stream_rpc_method_handler, answer_many),
        }
        make, behavior = makers[kind]
        return cast(Handler, make(behavior))

    def _parser(self, descriptor: MethodDescriptor) -> Parse:
        from_string = GetMessageClass(descriptor.input_type).FromString
        most = self._host.settings.limits.max_message_bytes

        def parse(content: bytes, call: GrpcCall) -> Message:
            call.n_request_bytes = len(content)
            if len(content) > most:
                words = f"the request has {len(content)} bytes, at most limits.max_message_bytes = {most} are allowed"
                details = {"message_bytes": str(len(content)), "max_message_bytes": str(most)}
                raise Refusal(MESSAGE_TOO_LARGE, words, details)
            try:
                return from_string(content)
            except DecodeError:
                raise invalid("request", "found bytes that are no message of its type") from None

        return parse

    async def _run(
        self, method: str, policy: Policy, answer: Callable[[GrpcCall], Awaitable[Reply | None]], context: Context
    ) -> bytes | None:
        pairs = tuple(context.invocation_metadata() or ())
        metadata, violations = _read(pairs)
        call = self._begin(method, context, metadata, policy)
        try:
            call.tenant = self._authentication.check(method, pairs) or call.tenant
            if policy.needs_model:
                self._host.lifecycle.require_open()
            if violations is not None:
                raise violations
            reply = await answer(call)
            await call.admit()
            context.set_trailing_metadata(self._load(policy))
        except asyncio.CancelledError:
            if call.ending is None:
                self._end(call, "DEADLINE_EXCEEDED" if call.was_ended_by_deadline else "CANCELLED")
                raise
            if call.task is not None:
                call.task.uncancel()
            await self._fail(call, call.ending, policy)
        except grpc.aio.AbortError:
            # A servicer of another protocol, such as health, has set the status itself.
            self._end(call, call.context.code().name)
            raise
        except Exception as error:
            await self._fail(call, error, policy)
        else:
            self._end(call, "OK")
            return None if reply is None else reply.SerializeToString()
        return None

    def _begin(self, method: str, context: Context, metadata: RequestMetadata, policy: Policy) -> GrpcCall:
        request_id = secrets.token_hex(8)
        peer = context.peer()
        task = asyncio.current_task()
        assert task is not None  # narrows: a coroutine runs in one
        call = GrpcCall(
            method=method,
            context=context,
            instance_id=self._host.instance_id,
            request_id=request_id,
            peer=peer,
            record=self._host.telemetry.call(
                method, request_id, metadata.tenant, peer, metadata.traceparent, tracestate=metadata.tracestate
            ),
            task=task,
            tenant=metadata.tenant,
            priority=metadata.priority,
            approximations=self._approximations if policy.is_request else "",
        )
        self._host.calls.enter(call, is_request=policy.is_request)
        return call

    async def _fail(self, call: GrpcCall, error: Exception, policy: Policy) -> None:
        failure = reported_failure(error, call, self._host.telemetry.log)
        if error is call.ending and failure.reason == DRAINING:
            failure = replace(failure, metadata={**failure.metadata, "tokens_emitted": str(call.n_sent_tokens)})
        if failure.reason == "KV_FULL" and not failure.can_never_fit:
            n_lacking = int(failure.metadata["needed"]) - int(failure.metadata["available"])
            failure = replace(failure, retry_after=self._host.sessions.seconds_until_blocks(n_lacking))
        trailing = (*trailing_metadata(failure), *self._load(policy))
        if not call.is_admitted:
            trailing = (*trailing, *call.identity)
        self._end(call, failure.row.code, failure.reason)
        try:
            await call.context.abort(status_code(failure), failure.message, trailing)
        except grpc.aio.AbortError:
            raise
        except Exception as unsent:
            # The caller left before the status was sent.
            raise asyncio.CancelledError("nothing can be sent") from unsent

    def _load(self, policy: Policy) -> TrailingMetadata:
        """The load, for load balancing in the client."""
        if not policy.is_request:
            return ()
        host = self._host
        return ((ORCA_KEY, orca_report(host.load.snapshot(), host.settings.scheduler.max_running)),)

    def _end(self, call: GrpcCall, code: str, reason: str = "") -> None:
        """Records the end of a call. Nothing can end it in another way from here on."""
        self._host.calls.leave(call)
        call.task = None
        call.record.facts.request_id = call.request_id
        call.record.facts.tenant = call.tenant
        call.record.ended(code, reason)


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


def _read(pairs: Metadata) -> tuple[RequestMetadata, FieldsInvalid | None]:
    """The metadata, or the error in it, which is raised after the checks that come first."""
    try:
        return read_request_metadata(pairs), None
    except FieldsInvalid as error:
        return RequestMetadata(), error


async def _each_parsed(parse: Parse, contents: AsyncIterator[bytes], call: GrpcCall) -> AsyncIterator[Message]:
    async for content in contents:
        yield parse(content, call)
