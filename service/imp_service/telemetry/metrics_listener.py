"""Serves GET /metrics over HTTP, with limits on connections, sizes and times."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from imp_service.telemetry.http_head import BadRequest, read_head

MAX_CONNECTIONS = 32
MAX_HEAD_BYTES = 8192
# Seconds for a whole connection.
TIMEOUT = 10.0
# Rendering takes a millisecond of the event loop. Above this rate the last page is sent again.
RENDERS_PER_SECOND = 10
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsListener:
    """Serves from start() to stop(), on the thread of the event loop."""

    def __init__(
        self,
        listening: socket.socket,
        render: Callable[[], bytes],
        *,
        clock: Callable[[], float],
        timeout: float = TIMEOUT,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """`listening` is a bound TCP or Unix socket, which the listener owns from now on."""
        self._listening = listening
        self._render = render
        self._clock = clock
        self._timeout = timeout
        self._max_connections = max_connections
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._page = b""
        self._page_at = float("-inf")
        self._allowance = float(RENDERS_PER_SECOND)

    async def start(self) -> None:
        """Accepts connections from now on."""
        self._server = await asyncio.start_server(self._accept, sock=self._listening, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        """Closes the listener and all connections. The file of a Unix socket stays."""
        if self._server is None:
            self._listening.close()
            return
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None  # narrows: a coroutine runs in one
        self._connections.add(task)
        try:
            async with asyncio.timeout(self._timeout):
                await self._serve(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # the client is too slow, or gone
        finally:
            self._connections.discard(task)
            # Discards data that the client does not read.
            with suppress(OSError):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, body, is_head = HTTPStatus.OK, b"", False
        try:
            is_head = read_head(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        except BadRequest as error:
            status = error.status
        body = self._fresh_page() if status is HTTPStatus.OK else f"{status.phrase}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if is_head else body))
        await writer.drain()

    def _fresh_page(self) -> bytes:
        """The current metrics, or the last page if requests come too fast."""
        now = self._clock()
        self._allowance = min(self._allowance + (now - self._page_at) * RENDERS_PER_SECOND, RENDERS_PER_SECOND)
        self._page_at = now
        if self._allowance >= 1 or not self._page:
            self._allowance -= 1
            self._page = self._render()
        return self._page
