"""A request and its response over ASGI, as Ray's HTTP proxy hands them to a replica.

The proxy has the connection: it reads heads, keeps connections open, and takes what a client has not read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from imp_service.http_api.exchange import FIXED_HEADERS, JSON, Exchange, Headers, Times

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Ray adds it to each response itself.
REQUEST_ID = "x-request-id"


class AsgiExchange(Exchange):
    """Made for each request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, times: Times) -> None:
        self.method = scope["method"]
        raw = scope.get("raw_path") or scope["path"].encode()
        # Without the application's prefix.
        self.path = raw.partition(b"?")[0].decode("latin-1").removeprefix(scope.get("root_path", "")) or "/"
        query = scope.get("query_string", b"").decode("latin-1")
        self.target = f"{self.path}?{query}" if query else self.path
        self.peer = _peer(scope)
        self.pairs = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]
        )
        self.headers: Mapping[str, str] = dict(reversed(self.pairs))
        self.is_http_1_1 = scope["http_version"] == "1.1"
        self._receive = receive
        self._send = send
        self.times = times
        self._has_body = True
        self._has_begun = False
        self._has_ended = False

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    async def _next_part(self) -> bytes:
        while self._has_body:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError("the client has left")
            self._has_body = message.get("more_body", False)
            if part := message.get("body", b""):
                return bytes(part)
        return b""

    async def reply(self, status: HTTPStatus, headers: Headers, body: bytes, *, closes: bool = False) -> None:
        length = [("content-length", str(len(body)))]
        await self.begin(status, [*headers, *length])
        await self.end(b"" if self.method == "HEAD" else body)

    async def begin(self, status: HTTPStatus, headers: Headers) -> None:
        pairs = [*headers]
        if "content-type" not in dict(pairs):
            pairs.append(("content-type", JSON))
        await self.pass_on(status, [*pairs, *FIXED_HEADERS.items()], closes=False)

    async def pass_on(self, status: int, headers: Headers, *, closes: bool) -> None:
        self._has_begun = True
        own_id = REQUEST_ID, self.headers.get(REQUEST_ID)
        sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers if (name, value) != own_id]
        await self._send({"type": "http.response.start", "status": int(status), "headers": sent})

    async def write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    # May be called again, which does nothing.
    async def end(self, piece: bytes = b"") -> None:
        if not self._has_ended:
            self._has_ended = True
            await self._send({"type": "http.response.body", "body": piece, "more_body": False})

    def break_off(self) -> None:
        # A server closes the connection of an application that returns without the last message.
        self._has_ended = True


def _peer(scope: Scope) -> str:
    """The client's address in the form of gRPC, as the proxy sees it."""
    host, port = scope.get("client") or ("", 0)
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
