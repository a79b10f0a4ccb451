"""Listens for HTTP with aiohttp. This is the only file of the server that knows aiohttp."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

from aiohttp import HttpVersion10, web
from aiohttp.web_protocol import RequestHandler

from imp_service.config.server_settings import HttpSettings
from imp_service.http_api.connection_places import SPARE_PLACES, ConnectionPlaces, ConnectionUse
from imp_service.http_api.exchange import FIXED_HEADERS, JSON, PEER, Exchange, Headers, Times
from imp_service.http_api.guard import HttpRefusal
from imp_service.http_api.host_names import split_target
from imp_service.http_api.openai.form import error_body
from imp_service.serving.message_memory import MessageLimit

Handle = Callable[[Exchange], Awaitable[None]]

MAX_LINE_BYTES = 8190
MAX_HEADERS = 100
# After a response to a request whose body is not read, the rest is thrown away for so long. If the connection closed at
# once, the client's system could drop the response before the client has read it.
LINGER_SECONDS = 2.0
# The most bytes that one read takes from a connection.
RECEIVED_BYTES = 16 * 1024
# How long a spare connection waits for its head.
SPARE_SECONDS = 2.0
# SO_LINGER: what is unsent is dropped.
RESET = struct.pack("ii", 1, 0)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# aiohttp would report requests that it cannot parse, which are the client's fault.
QUIET = logging.getLogger("imp.http")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class AiohttpExchange(Exchange):
    """An exchange over aiohttp."""

    def __init__(self, request: web.BaseRequest, connection: HttpConnection, times: Times) -> None:
        self.method = request.method
        # The path as received, neither decoded nor normalized.
        location, mark, query = request.raw_path.partition("?")
        authority, self.path = split_target(location)
        self.target = f"{self.path}{mark}{query}"
        pairs = [(name.lower(), value) for name, value in request.headers.items()]
        self.peer = (connection.is_from_front and dict(pairs).get(PEER)) or _peer(request)
        self.is_http_1_1 = request.version != HttpVersion10
        if authority is not None and ("host" in dict(pairs) or not self.is_http_1_1):
            # As RFC 9112 says, the target's host takes the place of the header, which HTTP/1.1 requires nevertheless.
            pairs = [("host", authority), *(pair for pair in pairs if pair[0] != "host")]
        self.pairs = tuple(pairs)
        self.headers: Mapping[str, str] = dict(reversed(self.pairs))
        self._request = request
        self._connection = connection
        self.is_spare = connection.is_spare
        self.times = times
        # When the client must have read a whole response.
        self._read_by = math.inf
        self.response: web.StreamResponse | None = None
        self._has_ended = False
        self._watch: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        return self.response is not None

    async def read_body(self, limit: MessageLimit, will_have: Callable[[int], object]) -> bytearray:
        try:
            return await super().read_body(limit, will_have)
        finally:
            self._connection.body_since = None

    def _part_at_hand(self) -> bytes | None:
        content = self._request.content
        with _as_malformed():
            part: bytes = content.read_nowait()
        return part if part or content.at_eof() else None

    async def read_part(self) -> bytes:
        if self._body_by is None:
            self._ask_for_body()
            self._connection.body_since = asyncio.get_running_loop().time()
        part = b""
        try:
            part = await super().read_part()
            return part
        finally:
            if not part:
                self._connection.body_since = None

    async def _next_part(self) -> bytes:
        with _as_malformed():
            return await self._request.content.readany()

    async def reply(self, status: HTTPStatus, headers: Headers, body: bytes, *, closes: bool = False) -> None:
        response = web.Response(status=status, body=body)
        response.headers.update(headers)
        await self._send(response, closes=closes)
        self._read_by = asyncio.get_running_loop().time() + self.times.body
        await self.end()

    async def begin(self, status: HTTPStatus, headers: Headers) -> None:
        response = web.StreamResponse(status=status)
        response.headers.update(headers)
        if self.is_http_1_1:
            response.enable_chunked_encoding()
        await self._send(response, closes=not self.is_http_1_1)

    async def pass_on(self, status: int, headers: Headers, *, closes: bool) -> None:
        """Sends the head of a response that another server has written: nothing is added to it."""
        response = web.StreamResponse(status=status)
        response.headers.extend(headers)
        response.headers.setdefault("server", FIXED_HEADERS["server"])  # or aiohttp would add its own
        if self.is_http_1_1 and "content-length" not in response.headers:
            response.enable_chunked_encoding()
        if closes or self.is_spare:
            response.force_close()
        self.response = response
        await response.prepare(self._request)

    async def write(self, piece: bytes) -> None:
        assert self.response is not None  # narrows: begin() came first
        await self.response.write(piece)
        if self._connection.writing_paused:
            await self._connection.wait_for_reader()

    async def end(self, piece: bytes = b"") -> None:
        assert self.response is not None  # narrows: reply() or begin() came first
        if self._has_ended:
            return
        self._has_ended = True
        self._watch_reading(math.inf)
        try:
            await self.response.write_eof(piece)
        finally:
            self._stop_watching()

    def break_off(self) -> None:
        response, transport = self.response, self._request.transport
        if response is not None and transport is not None and not response.chunked and response.content_length is None:
            # To this client the end of the connection is that of the response, so it is reset.
            made = transport.get_extra_info("socket")
            if made.family != socket.AF_UNIX:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            transport.abort()
        self._connection.force_close()

    def _watch_reading(self, n_before: float) -> None:
        """Ends the connection if its client reads nothing for a while. `n_before`: unsent bytes at the last look."""
        self._stop_watching()
        transport = self._request.transport
        if transport is None:
            return
        n_unsent = transport.get_write_buffer_size()
        now = asyncio.get_running_loop().time()
        if n_unsent < n_before and now < self._read_by:
            look = min(now + self.times.part, self._read_by)
            self._watch = asyncio.get_running_loop().call_at(look, self._watch_reading, n_unsent or math.inf)
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
        if closes or self.is_spare:
            response.force_close()
        self.response = response
        await response.prepare(self._request)


class HttpConnection(RequestHandler):
    """A connection that ends if no complete head arrives in time."""

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self.is_spare = False
        # When the body of the current request began, while it is incomplete.
        self.body_since: float | None = None
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def is_from_front(self) -> bool:
        """At the other end is the front of this process."""
        return self._server is not None and self._server.is_for_front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        place = self._server.place_for(self, transport)
        if place is None:
            # aiohttp never sees it.
            transport.abort()  # type: ignore[attr-defined]
            self._server = None  # type: ignore[assignment]
            return
        self.is_spare = place is ConnectionUse.SPARE
        if self._server.max_unsent_bytes is not None:
            transport.set_write_buffer_limits(self._server.max_unsent_bytes)  # type: ignore[attr-defined]
        # What arrives at once is in memory before anything counts it.
        transport.max_size = RECEIVED_BYTES  # type: ignore[attr-defined]
        super().connection_made(transport)
        self._wait_for_head()

    def give_way(self) -> None:
        """Closes at once, for another connection."""
        self.body_since = None
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, error: BaseException | None) -> None:
        self._stop_waiting()
        if self._server is not None:
            self._server.places.leave(self)
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

    async def wait_for_reader(self) -> None:
        """Returns once the client has read most of what was written."""
        await self._drain_helper()

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
        seconds = self._server.times.part
        seconds = min(SPARE_SECONDS, seconds) if self.is_spare else seconds
        self._head_timer = self._loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self.force_close()


class Server(web.Server):
    """Makes the connections of one listener, up to a number. Spare ones beyond it are for probes alone."""

    def __init__(
        self,
        handle: Handle,
        settings: HttpSettings,
        max_connections: int,
        max_field_bytes: int,
        n_spare: int = SPARE_PLACES,
        *,
        max_unsent_bytes: int | None = None,
    ) -> None:
        """`max_unsent_bytes`: with so many that a client has not read, write() waits. None: the default of asyncio."""
        super().__init__(self._answer, handler_cancellation=True)
        self.max_unsent_bytes = max_unsent_bytes
        # Only the front of this process connects, and says who the clients are.
        self.is_for_front = False
        self._handle = handle
        self.times = Times.of(settings)
        self.max_connections = max_connections
        self.places = ConnectionPlaces(max_connections, n_spare, self.times.part)
        self._options: dict[str, Any] = {
            "keepalive_timeout": settings.idle_timeout.total_seconds(),
            "max_line_size": MAX_LINE_BYTES,
            "max_field_size": max_field_bytes,
            "max_headers": MAX_HEADERS,
            "auto_decompress": False,
            "access_log": None,
            "logger": QUIET,
            "lingering_time": LINGER_SECONDS,
            # aiohttp stops reading at twice as much.
            "read_bufsize": RECEIVED_BYTES,
        }

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, loop=self._loop, **self._options)

    def place_for(self, connection: HttpConnection, transport: asyncio.BaseTransport) -> ConnectionUse | None:
        """The place of a new connection; None: it may not connect, or there is none."""
        if not self.places.admits(transport):
            return None
        others = cast("Collection[HttpConnection]", self._connections)  # this server makes no others
        return self.places.take(connection, others, self._loop.time())

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, HttpConnection)  # narrows: the server made it
        exchange = AiohttpExchange(request, request.protocol, self.times)
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
        handshake = None if self._tls is None else self._web.times.part
        self._server = await asyncio.get_running_loop().create_server(
            self._web,
            sock=self._listening,
            ssl=self._tls,
            ssl_handshake_timeout=handshake,
            # As many may come at once as may be open. The system has its own bound.
            backlog=self._web.max_connections,
        )

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new connections. Running requests have `grace_seconds` to end."""
        if self._server is None:
            self._listening.close()
            return
        self._server.close()
        self._web.pre_shutdown()
        await self._web.shutdown(grace_seconds)


@contextmanager
def _as_malformed() -> Iterator[None]:
    """What aiohttp raises about a body within the `with` block becomes a refusal."""
    try:
        yield
    except (ValueError, web.HTTPException, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise HttpRefusal(HTTPStatus.BAD_REQUEST, "bad_request", "the body is malformed", closes=True) from error


def _peer(request: web.BaseRequest) -> str:
    """The client's address in the form of gRPC."""
    found = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not found or isinstance(found, str):
        return "unix:"
    host, port = found[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
