"""One replica: a server with its own engine, and the methods that Ray calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor

from imp_service.config import read_settings
from imp_service.ray_app.http_side import HttpSide
from imp_service.ray_app.proxied_call import Handler, Reply, answer_stream, answer_unary
from imp_service.ray_app.proxied_services import SERVICES
from imp_service.ray_app.sessionless import SessionlessInference
from imp_service.rpc.call_path import GrpcCallPath
from imp_service.rpc.server import INFERENCE, make_servicers
from imp_service.serving.make_model import make_model
from imp_service.serving.process_memory import leave_no_core
from imp_service.serving.security.authentication import Authentication
from imp_service.serving.server_state import ServerState

if TYPE_CHECKING:  # Ray is an extra: without it, the tests still drive every method
    from ray.serve.grpc_util import RayServegRPCContext
    from starlette.requests import Request

    from imp_service.ray_app.http_response import DoorResponse

# Converts the argument that Ray passes to a method, one message or an iterator of messages, to its messages.
ContentsOf = Callable[[Any], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class MethodKey:
    """The key of a handler, as gRPC expects it."""

    method: str
    invocation_metadata: tuple[()] = ()


class Handlers:
    """Collects handlers in place of a gRPC server."""

    def __init__(self) -> None:
        self._services: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, services: tuple[grpc.GenericRpcHandler, ...]) -> None:
        """Adds handlers, like the method of grpc.aio.Server."""
        self._services += services

    def find(self, method: str) -> Handler:
        """The handler of a method by its full name. It takes an iterator of messages."""
        sought = cast(grpc.HandlerCallDetails, MethodKey(method))
        found: Any = next(handler for service in self._services if (handler := service.service(sought)))
        return cast(Handler, found.stream_unary or found.stream_stream)


class Replica:
    """Ray creates it in a process of its own. The methods of the services are added below."""

    async def __init__(self, config: str | None, assignments: list[str]) -> None:  # type: ignore[misc]  # Ray awaits it
        leave_no_core()  # the process belongs to this replica
        settings = read_settings(config, assignments)
        self._state = ServerState(settings)
        self._state.adopt(await asyncio.to_thread(make_model, settings, lambda done, total: None))
        self._handlers = Handlers()
        # Ray's proxy is responsible for authentication.
        authentication = Authentication(None, public_health=True)
        self.http = HttpSide(self._state, authentication)
        path = GrpcCallPath(self._state, authentication)
        servicers: Mapping[Any, object] = {**make_servicers(self._state), INFERENCE: SessionlessInference(self._state)}
        for service, servicer in servicers.items():
            path.register(cast(grpc.aio.Server, self._handlers), service, servicer)

    async def __call__(self, request: Request) -> DoorResponse:
        """A request over HTTP. Ray sends the answer by calling it."""
        from imp_service.ray_app.http_response import DoorResponse

        return DoorResponse(self.http)

    def handler(self, method: str) -> Handler:
        """The handler of a method by its full name."""
        return self._handlers.find(method)

    def check_health(self) -> None:
        """Raises if the engine has failed for good; then Ray replaces the replica."""
        if self._state.fault.done():
            raise self._state.fault.result()

    def __del__(self) -> None:
        if hasattr(self, "_handlers"):
            self._state.close()


def _unary(name: str, contents_of: ContentsOf) -> Callable[..., Any]:
    async def answer(self: Replica, request: Any, grpc_context: RayServegRPCContext) -> Reply:
        return await answer_unary(self.handler(name), contents_of(request), grpc_context)

    return answer


def _stream(name: str, contents_of: ContentsOf) -> Callable[..., Any]:
    async def answer(self: Replica, request: Any, grpc_context: RayServegRPCContext) -> AsyncIterator[Reply]:
        async for reply in answer_stream(self.handler(name), contents_of(request), grpc_context):
            yield reply

    return answer


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _add(method: MethodDescriptor) -> None:
    # Ray routes by the name without the service, so names must be unique.
    assert not hasattr(Replica, method.name), method.full_name
    name = f"/{method.containing_service.full_name}/{method.name}"
    contents_of: ContentsOf = aiter if method.client_streaming else _one
    setattr(Replica, method.name, (_stream if method.server_streaming else _unary)(name, contents_of))


for _service in SERVICES:
    for _method in _service.methods:
        _add(_method)
