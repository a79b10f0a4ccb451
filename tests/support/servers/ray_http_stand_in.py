"""Does what Ray Serve's HTTP proxy does between a client and a replica, in this process and without Ray.

If a replica dies, the proxy closes the connections of its streams, and answers 500 in plain text to a call whose answer
has not begun. The next call for that replica fails too; then the proxy asks the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from imp_service.ray_app.replica import Replica
from support.servers.loop_thread import loop_thread
from support.servers.ray_stand_in import replicas_in_this_process
from support.servers.scripted_engine import Asked, Peer, read_request

PREFIX = "/imp"


class _ToClient:
    """The answer of a replica as ASGI messages, written to the client's connection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.has_begun = False
        self._is_chunked = True

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Takes one message."""
        if message["type"] == "http.response.start":
            pairs = [(name.decode(), value.decode()) for name, value in message["headers"]]
            self.has_begun, self._is_chunked = True, "content-length" not in dict(pairs)
            await self._peer.head(message["status"], pairs, chunked=self._is_chunked)
            return
        if body := message["body"]:
            await (self._peer.chunk if self._is_chunked else self._peer.send)(body)
        if self._is_chunked and not message["more_body"]:
            await self._peer.end()


class RayProxyStandIn:
    """Asks the replicas in turn."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self._turns = itertools.count()
        self._calls: dict[asyncio.Task[None], int] = {}
        self._dead: set[int] = set()
        self._known_dead: set[int] = set()
        self._doomed: int | None = None
        self._n_left = 0
        # Calls that the proxy has answered with 500.
        self.n_failed = 0
        self.address = ""

    def doom(self, number: int, n_messages: int) -> None:
        """The process of a replica ends when it has sent so many messages."""
        self._doomed, self._n_left = number, n_messages

    def _kill(self, number: int) -> None:
        self._dead.add(number)
        for call, replica in self._calls.items():
            if replica == number:
                call.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(await read_request(reader), Peer(writer)):
                pass
        writer.close()

    async def _answer(self, asked: Asked, peer: Peer) -> bool:
        """Returns whether the connection stays open."""
        if not asked.target.startswith(PREFIX):
            await peer.reply(b"Path not found.", 404, "text/plain")
            return True
        number = self._choose()
        client = _ToClient(peer)
        call = asyncio.create_task(self._ask(number, asked, client))
        self._calls[call] = number
        try:
            await asyncio.wait((call,))
        finally:
            del self._calls[call]
            call.cancel()
        if number not in self._dead:
            return True
        if not client.has_begun:
            self.n_failed += 1
            await peer.reply(b"Internal Server Error", 500, "text/plain")
        return not client.has_begun

    def _choose(self) -> int:
        living = [n for n in range(len(self._replicas)) if n not in self._known_dead]
        return living[next(self._turns) % len(living)]

    async def _ask(self, number: int, asked: Asked, client: _ToClient) -> None:
        if number in self._dead:
            self._known_dead.add(number)
            return
        path, _, query = asked.target.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": asked.method,
            "path": path,
            "root_path": PREFIX,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in asked.pairs],
            "client": ("127.0.0.1", 1),
        }
        parts = [{"type": "http.request", "body": asked.body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            return parts.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            self._n_left -= number == self._doomed
            if number == self._doomed and not self._n_left:
                self._kill(number)
                await asyncio.sleep(0)  # the call ends here
            await client.send(message)

        await self._replicas[number].http.answer(scope, receive, send)


@contextlib.contextmanager
def http_behind_stand_in(n_replicas: int, settings: Sequence[str]) -> Iterator[RayProxyStandIn]:
    """Yields a proxy behind which replicas with these settings answer."""
    thread = loop_thread()
    with replicas_in_this_process(n_replicas, settings) as replicas:

        async def start() -> tuple[asyncio.Server, RayProxyStandIn]:
            proxy = RayProxyStandIn(replicas)
            server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
            proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return server, proxy

        server, proxy = thread.run(start())
        try:
            yield proxy
        finally:
            thread.call(server.close)
            del proxy, server
