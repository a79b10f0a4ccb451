"""A server behind a front, whose answers a test defines byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from support.run.pauses import pause_loop

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
EVENTS = [("content-type", "text/event-stream")]
ORIGIN = {"server": "a" * 16, "request": "b" * 64, "seed": "7", "created": 1}
HEAD = {"origin": ORIGIN, "id": "chatcmpl-1", "created": 1}
DONE = b"data: [DONE]\n\n"
ROLE = b'data: {"role":"assistant"}\n\n'


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    target: str
    pairs: Sequence[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name."""
        return dict(self.pairs)

    @property
    def fields(self) -> dict[str, Any]:
        """The body as JSON."""
        return dict(json.loads(self.body))

    @property
    def resume(self) -> dict[str, Any]:
        """What the caller has; empty: nothing."""
        return dict(self.fields.get("resume", {}))

    @property
    def told(self) -> list[int]:
        """The ids of the first sequence that the caller has."""
        sequences = self.resume.get("sequences", [])
        return list(sequences[0]["token_ids"]) if sequences else []


class Peer:
    """The connection on which a script answers."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def head(self, status: int = 200, pairs: Sequence[tuple[str, str]] = (), *, chunked: bool = True) -> None:
        """Sends the head of a response."""
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in pairs)]
        lines += ["transfer-encoding: chunked"] if chunked else []
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, content: bytes) -> None:
        """Sends a part of the body."""
        await self.send(b"%x\r\n%s\r\n" % (len(content), content))

    async def end(self) -> None:
        """Ends the body."""
        await self.send(b"0\r\n\r\n")

    async def reply(self, content: bytes, status: int = 200, kind: str = "application/json") -> None:
        """Sends a whole response."""
        await self.head(status, [("content-type", kind), ("content-length", str(len(content)))], chunked=False)
        await self.send(content)

    async def send(self, content: bytes) -> None:
        """Sends bytes."""
        self.writer.write(content)
        await self.writer.drain()

    def cut(self) -> None:
        """Resets the connection."""
        cut(self.writer)


def cut(writer: asyncio.StreamWriter) -> None:
    """Resets a connection. What was sent before may arrive or not."""
    made = writer.get_extra_info("socket") if not writer.transport.is_closing() else None
    if made is not None and made.family != socket.AF_UNIX:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()


Answer = Callable[[Asked, Peer], Awaitable[None]]


@dataclass
class ScriptedEngine:
    """One server, from start() to stop(). It can be killed and started again at the same address."""

    answer: Answer
    health: int | None = 200  # None: it takes requests for health, and does not answer
    live: int | None = 200
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    n_probes: int = 0
    probed_hosts: set[str] = field(default_factory=set)
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def address(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens, at the same port as before."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def kill(self) -> None:
        """Ends at once, with all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in [*self._open]:
            cut(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was killed before this connection was taken
            cut(writer)
            return
        self._open.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._answer(await read_request(reader), Peer(writer))
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, asked: Asked, peer: Peer) -> None:
        probes = {"/health": self.health, "/health/live": self.live}
        if asked.target in probes:
            self.n_probes += 1
            self.probed_hosts.add(asked.headers["host"])
            status = probes[asked.target]
            if status is None:
                await pause_loop(3600)
            await peer.reply(b"{}", status or 0)
            return
        self.asked.append(asked)
        await self.answer(asked, peer)


async def read_request(reader: asyncio.StreamReader) -> Asked:
    """Reads one request. Its body has a length or comes in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = [(line.partition(":")[0].lower(), line.partition(":")[2].strip()) for line in head[1:] if line]
    headers = dict(pairs)
    body = b""
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return Asked(method, target, pairs, body)


def mark(**facts: Any) -> bytes:
    """A mark."""
    return b": imp %s\n\n" % json.dumps(facts, separators=(",", ":")).encode()


def event(token: int) -> bytes:
    """The event of one token."""
    return b'data: {"t":%d}\n\n' % token


def unit(*events: bytes, **facts: Any) -> bytes:
    """A mark and its events."""
    return mark(**facts, events=len(events), crc=crc32(b"".join(events))) + b"".join(events)


def units(n_tokens: int, resume: Mapping[str, Any] | None = None) -> list[bytes]:
    """The units of a stream of one sequence whose token i is 10 + i, behind those that the caller has."""
    first = unit(ROLE, **HEAD)
    last = unit(b'data: {"end":true}\n\n', DONE, finished=[0], done=True)
    sequences = (resume or {}).get("sequences", [])
    told = sequences[0]["token_ids"] if sequences else []
    assert told == [10 + i for i in range(len(told))], told
    if resume:
        assert {name: resume[name] for name in HEAD} == HEAD, resume
        first = mark(**HEAD, events=0)
    if sequences and sequences[0]["finished"]:
        return [first, unit(DONE, over=True)]
    return [first, *(unit(event(10 + i), told=[[0, [10 + i]]]) for i in range(len(told), n_tokens)), last]


def golden(n_tokens: int) -> bytes:
    """What the client of such a stream gets."""
    tokens = b"".join(map(event, range(10, 10 + n_tokens)))
    return ROLE + tokens + b'data: {"end":true}\n\n' + DONE


def streaming(
    n_tokens: int, *, cut_at: Callable[[Asked], int | None] = lambda asked: None, pause: float = 0.0
) -> Answer:
    """A script that sends such a stream. It resets the connection after so many bytes of the body."""

    async def answer(asked: Asked, peer: Peer) -> None:
        n_left = cut_at(asked)
        await peer.head(pairs=EVENTS)
        for unit in units(n_tokens, asked.resume):
            if n_left is not None and len(unit) >= n_left:
                await peer.chunk(unit[:n_left])
                await pause_loop(0.01)
                peer.cut()
                return
            n_left = None if n_left is None else n_left - len(unit)
            await peer.chunk(unit)
            await pause_loop(pause)
        await peer.end()

    return answer


@contextlib.asynccontextmanager
async def running(*engines: ScriptedEngine) -> AsyncIterator[None]:
    """Runs them within the block."""
    for engine in engines:
        await engine.start()
    try:
        yield
    finally:
        for engine in engines:
            engine.kill()
