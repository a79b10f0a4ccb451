"""Calls a replica over ASGI as Ray's HTTP proxy does, in this process and without Ray."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from imp_service.ray_app.replica import Replica
from support.http_calls import Reply
from support.loop_thread import loop_thread
from support.ray_stand_in import replicas_in_this_process

PREFIX = "/imp"
HEAD = ((b"host", b"localhost"), (b"content-type", b"application/json"), (b"x-request-id", b"of-the-proxy"))


class AsgiCall:
    """One request and its response. The `pieces` of the body arrive one by one; at None the client disconnects."""

    def __init__(
        self, method: str, path: str, pieces: tuple[bytes | None, ...], headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        named = {name for name, _ in headers}
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": PREFIX + path,
            "raw_path": (PREFIX + path).encode(),
            "root_path": PREFIX,
            "headers": [*(pair for pair in HEAD if pair[0] not in named), *headers],
            "client": ("127.0.0.1", 4711),
        }
        self._pieces = list(pieces)
        self.sent: list[dict[str, Any]] = []
        self.has_event = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self._pieces:
            await asyncio.get_running_loop().create_future()  # as long as the client stays
        piece = self._pieces.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if len(self.sent) > 1:
            self.has_event.set()

    @property
    def reply(self) -> Reply:
        """The response that the client gets; checks that the messages have the order that ASGI requires."""
        start, *bodies = self.sent
        assert start["type"] == "http.response.start"
        assert [body["type"] for body in bodies] == ["http.response.body"] * len(bodies)
        assert [body["more_body"] for body in bodies] == [True] * (len(bodies) - 1) + [False]
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(headers) == len(start["headers"])
        return Reply(start["status"], headers, b"".join(body["body"] for body in bodies))


class AsgiReplica:
    """A replica that is called over ASGI."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def ask(self, method: str, path: str, body: Any = None, *headers: tuple[bytes, bytes]) -> Reply:
        """Returns the response. Sends the body in two pieces."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        call = AsgiCall(method, path, (content[:5], content[5:]), headers)
        loop_thread().run(self.replica.http.answer(call.scope, call.receive, call.send))
        return call.reply

    def post(self, path: str, body: Any) -> Reply:
        """Returns the response to a POST, as HttpClient.post does."""
        return self.ask("POST", path, body)


@contextmanager
def serve_over_asgi(*settings: str) -> Iterator[AsgiReplica]:
    """Yields one replica with these settings."""
    with replicas_in_this_process(1, settings) as (replica,):
        yield AsgiReplica(replica)
