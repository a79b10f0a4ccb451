"""The HTTP client of the bench: OpenAI requests on raw sockets, read as bytes to keep the client cheap."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from compare.front_end.streams import Read

DONE = b"data: [DONE]\n\n"
END_OF_BODY = b"0\r\n\r\n"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MOST_BYTES = 1 << 20


def stream_request(n_tokens: int, first: int, max_chunk_tokens: int | None = None) -> dict[str, Any]:
    """Returns the body that corresponds to streams.request()."""
    fields = {"prompt": [first], "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    sizes = {} if max_chunk_tokens is None else {"max_chunk_tokens": max_chunk_tokens}
    return {**fields, **sizes, "stream_options": {"include_usage": True}}


def post(path: str, body: dict[str, Any]) -> bytes:
    """Returns the bytes of a request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Connection:
    """A connection that is kept for the next request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def call(self, request: bytes) -> bytes:
        """Returns the body of a reply that has a length."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self._reader.readexactly(int(length.partition(b":")[2]))

    async def stream(self, request: bytes) -> tuple[float, bytes]:
        """Returns the arrival of the first event, and the bytes of the body with its chunk headers."""
        self._writer.write(request)
        parts, first, tail = [], 0.0, b""
        while not tail.endswith(END_OF_BODY):
            part = await self._reader.read(MOST_BYTES)
            assert part, "the server closed the connection"
            if not first and b"data: " in part:
                first = time.perf_counter()
            parts.append(part)
            tail = (tail + part)[-len(END_OF_BODY) :]
        content = b"".join(parts)
        assert content.startswith(b"HTTP/1.1 200 ") and DONE in content, content[:500]
        return first, content


@asynccontextmanager
async def connect(address: str, n: int) -> AsyncIterator[list[Connection]]:
    """Opens a number of connections."""
    host, _, port = address.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port), limit=MOST_BYTES) for _ in range(n)]
    try:
        yield [Connection(*each) for each in opened]
    finally:
        for _, writer in opened:
            writer.close()


def read_http_streams(address: str, requests: Sequence[dict[str, Any]]) -> Read:
    """Runs all streams concurrently to their ends."""
    return asyncio.run(_read_streams(address, requests))


async def _read_streams(address: str, requests: Sequence[dict[str, Any]]) -> Read:
    async with connect(address, len(requests)) as connections:
        packed = [post(COMPLETIONS, request) for request in requests]
        started = time.perf_counter()
        bodies = await asyncio.gather(*(one.stream(request) for one, request in zip(connections, packed, strict=True)))
        seconds = time.perf_counter() - started
    for (_, body), request in zip(bodies, requests, strict=True):
        assert b'"completion_tokens":%d,' % request["max_tokens"] in body, body[-500:]
    n_tokens = sum(request["max_tokens"] for request in requests)
    # After the events of tokens: the usage and [DONE].
    return Read(seconds, n_tokens, sum(body.count(b"data: ") - 2 for _, body in bodies))


def unread_socket(address: str, n_tokens: int) -> socket.socket:
    """Starts a stream that nobody reads, with the smallest receive buffer that the kernel allows."""
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    made.connect((host, int(port)))
    made.sendall(post(COMPLETIONS, stream_request(n_tokens, 300, max_chunk_tokens=1)))
    return made
