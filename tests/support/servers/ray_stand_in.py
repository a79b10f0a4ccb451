"""Does what Ray Serve does between a client and a replica, in this process and without Ray.

Ray gives a replica its own context object, and copies what the replica set on it to the client's call. The tests run
the same calls through this stand-in and through Ray, so they notice if the two differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc

from imp_service.ray_app.proxied_services import add_services_to_server
from imp_service.ray_app.replica import Replica
from support.servers.loop_thread import loop_thread

Pairs = list[tuple[str, Any]]


class StandInContext:
    """The methods of ray.serve.grpc_util.RayServegRPCContext that a method of a replica may use."""

    def __init__(self, context: Any) -> None:
        self._invocation_metadata: Pairs = [(key, value) for key, value in context.invocation_metadata()]
        self._peer = context.peer()
        self._code = context.code()
        self._details = context.details()
        self._trailing_metadata: Pairs = list(context.trailing_metadata())

    def invocation_metadata(self) -> Pairs:
        return self._invocation_metadata

    def peer(self) -> str:
        return str(self._peer)

    def code(self) -> Any:
        return self._code

    def details(self) -> Any:
        return self._details

    def trailing_metadata(self) -> Pairs:
        return self._trailing_metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def set_trailing_metadata(self, pairs: Pairs) -> None:
        self._trailing_metadata = pairs

    def copy_to(self, context: Any) -> None:
        """Copies the status and metadata to the client's call, as Ray does with each message, after pickling."""
        sent: StandInContext = pickle.loads(pickle.dumps(self))
        if sent._code:
            context.set_code(sent._code)
        if sent._details:
            context.set_details(sent._details)
        if sent._trailing_metadata:
            context.set_trailing_metadata(sent._trailing_metadata)


class Routed:
    """Stands in for the handler with which Ray replaces ours. Ray identifies replicas' methods by their bare names."""

    def __init__(self, unrouted: Any, method: str, next_replica: Callable[[], Replica]) -> None:
        self.request_streaming = unrouted.request_streaming
        self.response_streaming = unrouted.response_streaming
        self._method = method
        self._next_replica = next_replica
        self.unary_unary = self._unary
        self.unary_stream = self.stream_stream = self._stream

    def _call(self, request: Any, context: StandInContext) -> Any:
        return getattr(self._next_replica(), self._method)(request, grpc_context=context)

    async def _unary(self, request: bytes, context: Any) -> bytes:
        proxied = StandInContext(context)
        answer: Awaitable[Any] = self._call(request, proxied)
        reply = await answer
        proxied.copy_to(context)
        _end(context)
        return bytes(reply.SerializeToString())

    async def _stream(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        proxied = StandInContext(context)
        messages = _each(request) if self.request_streaming else request
        answer: AsyncIterator[Any] = self._call(messages, proxied)
        async with contextlib.aclosing(answer) as replies:  # type: ignore[type-var]
            async for reply in replies:
                proxied.copy_to(context)
                yield reply.SerializeToString()
        _end(context)


async def _each(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Wraps the request iterator: Ray passes its own, which has no `read`."""
    async for message in messages:
        yield message


def _end(context: Any) -> None:
    """Sets OK, as Ray does if the replica set no status."""
    if not context.code():
        context.set_code(grpc.StatusCode.OK)


class RoutingServer:
    """The server object that Ray passes to a function of grpc_servicer_functions."""

    def __init__(self, server: grpc.aio.Server, replicas: Sequence[Replica]) -> None:
        self._server = server
        turns = itertools.cycle(replicas)
        self._next_replica = lambda: next(turns)

    def add_generic_rpc_handlers(self, services: Sequence[Any]) -> None:
        for service in services:
            unrouted = service._method_handlers
            service._method_handlers = {
                path: Routed(handler, path.rpartition("/")[2], self._next_replica) for path, handler in unrouted.items()
            }
        self._server.add_generic_rpc_handlers(tuple(services))


async def _replica(settings: Sequence[str]) -> Replica:
    made = Replica.__new__(Replica)
    await made.__init__(None, list(settings))  # type: ignore[misc]  # as Ray makes it
    return made


@contextlib.contextmanager
def replicas_in_this_process(n: int, settings: Sequence[str]) -> Iterator[list[Replica]]:
    """Yields replicas on the shared loop. Fails if anything still references them at the end."""
    thread = loop_thread()
    replicas: list[Replica] = []

    async def make() -> None:
        replicas.extend(await asyncio.gather(*(_replica(settings) for _ in range(n))))

    async def check() -> None:
        for replica in replicas:
            replica.check_health()

    thread.run(make())
    try:
        yield replicas
    finally:
        thread.run(check())
        thread.call(replicas.clear)
        gc.collect()


@contextlib.contextmanager
def serve_behind_stand_in(n_replicas: int, settings: Sequence[str]) -> Iterator[str]:
    """Yields the address at which replicas with these settings answer in turn."""
    thread = loop_thread()
    with replicas_in_this_process(n_replicas, settings) as replicas:

        async def start() -> tuple[grpc.aio.Server, int]:
            server = grpc.aio.server()
            add_services_to_server(None, RoutingServer(server, replicas))  # type: ignore[arg-type]
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            return server, port

        server, port = thread.run(start())
        try:
            yield f"127.0.0.1:{port}"
        finally:
            thread.run(server.stop(0))
            del server
