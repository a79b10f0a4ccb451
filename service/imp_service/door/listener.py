"""Listens for HTTP with aiohttp. This is the only file of the server that knows aiohttp."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion10, web
from aiohttp.web_protocol import RequestHandler

from imp_service.config.server_settings import Http
from imp_service.door.exchange import FIXED_HEADERS, JSON, Exchange, Headers
from imp_service.door.failures import error_body
from imp_service.door.guard import HeadRefused, too_large
from imp_service.door.host_names import split_target

Handle = Callable[[Exchange], Awaitable[None]]

MAX_LINE_BYTES = 8190
MAX_HEADERS = 100
# After a response to a request whose body is not read, the rest is thrown away for so long. If the connection closed at
# once, the client's system could drop the response before the client has read it.
LINGER_SECONDS = 2.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# aiohttp would report requests that it cannot parse, which are the client's fault.
QUIET = logging.getLogger("imp.http")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class AiohttpExchange(Exchange):
    """An exchange over aiohttp."""

    def __init__(self, request: web.BaseRequest, timeout: float) -> None:
        """`timeout`: the most seconds without a byte while a body is received, or while the rest of one is sent."""
        self.method = request.method
        # The path as received, neither decoded nor normalized.
        authority, self.path = split_target(request.raw_path.partition("?")[0])
        self.peer = _peer(request)
        pairs = [(name.lower(), value) for name, value in request.headers.items()]
        self.is_http_1_1 = request.version != HttpVersion10
        if authority is not None and ("host" in dict(pairs) or not self.is_http_1_1):
            # As RFC 9112 says, the target's host takes the place of the header, which HTTP/1.1 requires nevertheless.
            pairs = [("host", authority), *(pair for pair in pairs if pair[0] != "host")]
        self.pairs = tuple(pairs)
        self.headers: Mapping[str, str] = dict(reversed(self.pairs))
        self._request = request
        self._timeout = timeout
        self.response: web.StreamResponse | None = None
        self._watch: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        return self.response is not None

    async def read_body(self, max_bytes: int) -> bytes:
        pieces: list[bytes] = []
        n_bytes = 0
        self._ask_for_body()
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    piece = await self._request.content.readany()
            except TimeoutError:
                raise HeadRefused(
                    HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "the body arrived too slowly", closes=True
                ) from None
            except (ValueError, web.HTTPException, OSError) as error:
                raise HeadRefused(
                    HTTPStatus.BAD_REQUEST, "bad_request", "the body is malformed", closes=True
                ) from error
            if not piece:
                return b"".join(pieces)
            n_bytes += len(piece)
            if n_bytes > max_bytes:
                raise too_large(max_bytes)
            pieces.append(piece)

    async def reply(self, status: HTTPStatus, headers: Headers, body: bytes, *, closes: bool = False) -> None:
        response = web.Response(status=status, body=body)
        response.headers.update(headers)
        await self._send(response, closes=closes)
        await self.end()

    async def begin(self, status: HTTPStatus, headers: Headers) -> None:
        response = web.StreamResponse(status=status)
        response.headers.update(headers)
        if self.is_http_1_1:
            response.enable_chunked_encoding()
        await self._send(response, closes=not self.is_http_1_1)

    async def write(self, piece: bytes) -> None:
        assert self.response is not None  # narrows: begin() came first
        await self.response.write(piece)

    async def end(self, piece: bytes = b"") -> None:
        assert self.response is not None  # narrows: reply() or begin() came first
        self._watch_reading(math.inf)
        try:
            await self.response.write_eof(piece)
        finally:
            self._stop_watching()

    def _watch_reading(self, n_before: float) -> None:
        """Ends the connection if its client reads nothing for `timeout`. `n_before`: unsent bytes at the last look."""
        self._stop_watching()
        transport = self._request.transport
        if transport is None:
            return
        n_unsent = transport.get_write_buffer_size()
        if n_unsent < n_before:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(self._timeout, self._watch_reading, n_unsent or math.inf)
        else:
            transport.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _ask_for_body(self) -> None:
        """Some clients send a large body only when they are told that it will be read."""
        transport = self._request.transport
        if self.headers.get("expect", "").lower() == "100-continue" and self.is_http_1_1 and transport is not None:
            transport.write(CONTINUE)

    async def _send(self, response: web.StreamResponse, *, closes: bool) -> None:
        response.headers.setdefault("content-type", JSON)
        response.headers.update(FIXED_HEADERS)
        if closes:
            response.force_close()
        self.response = response
        await response.prepare(self._request)


class Connection(RequestHandler):
    """A connection that ends if no complete head arrives in time."""

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._server.has_room:
            # aiohttp never sees it.
            transport.abort()  # type: ignore[attr-defined]
            self._server = None  # type: ignore[assignment]
            return
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, error: BaseException | None) -> None:
        self._stop_waiting()
        if self._server is not None:
            super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._server is None:
            return
        super().data_received(data)
        if self._messages or self._current_request is not None:
            self._stop_waiting()
        elif self._head_timer is None:
            self._wait_for_head()

    def eof_received(self) -> None:
        """A client that closes its side has left: asyncio would first send it what it does not read."""
        if self._current_request is not None and self.transport is not None:
            self.transport.abort()

    async def _drain_helper(self) -> None:
        """A cancelled write leaves its cancelled future behind, which would cancel the next write."""
        if self._drain_waiter is not None and self._drain_waiter.cancelled():
            self._drain_waiter = None
        await super()._drain_helper()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answers bytes that are not HTTP. The default would log them with a traceback."""
        shown = (message or "malformed request").partition("\n")[0][:256]
        body = error_body(HTTPStatus(status), "bad_request", shown)
        response = web.Response(status=status, body=body, headers=FIXED_HEADERS, content_type=JSON)
        response.force_close()
        return response

    def _wait_for_head(self) -> None:
        self._head_timer = self._loop.call_later(self._server.head_timeout, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self.force_close()


class Server(web.Server):
    """Makes the connections of one listener, up to a number."""

    def __init__(self, handle: Handle, settings: Http, max_connections: int, max_field_bytes: int) -> None:
        super().__init__(self._answer, handler_cancellation=True)
        self._handle = handle
        self.head_timeout = settings.head_timeout.total_seconds()
        self._max_connections = max_connections
        self._options: dict[str, Any] = {
            "keepalive_timeout": settings.idle_timeout.total_seconds(),
            "max_line_size": MAX_LINE_BYTES,
            "max_field_size": max_field_bytes,
            "max_headers": MAX_HEADERS,
            "auto_decompress": False,
            "access_log": None,
            "logger": QUIET,
            "lingering_time": LINGER_SECONDS,
        }

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._options)

    @property
    def has_room(self) -> bool:
        """One more connection is allowed."""
        return len(self._connections) < self._max_connections

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = AiohttpExchange(request, self.head_timeout)
        await self._handle(exchange)
        assert exchange.response is not None  # every request is answered
        await exchange.end()
        return exchange.response


class Listener:
    """One bound socket, from start() to stop()."""

    def __init__(self, listening: socket.socket, server: Server, tls: ssl.SSLContext | None) -> None:
        self._listening = listening
        self._web = server
        self._tls = tls
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accepts connections from now on."""
        handshake = None if self._tls is None else self._web.head_timeout
        self._server = await asyncio.get_running_loop().create_server(
            self._web, sock=self._listening, ssl=self._tls, ssl_handshake_timeout=handshake
        )

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new connections. Running requests have `grace_seconds` to end."""
        if self._server is None:
            self._listening.close()
            return
        self._server.close()
        self._web.pre_shutdown()
        await self._web.shutdown(grace_seconds)


def _peer(request: web.BaseRequest) -> str:
    """The client's address in the form of gRPC."""
    found = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not found or isinstance(found, str):
        return "unix:"
    host, port = found[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
