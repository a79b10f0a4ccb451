"""Answers that break off, and bodies that a front does not keep: what the client sees, and who is to blame."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from imp_service.front.relay import upstream
from support.run.pauses import pause_loop
from support.servers.front_served import FrontServed, Got, front_served, ready
from support.servers.scripted_engine import EVENTS, Asked, Peer, ScriptedEngine, running

# More than the buffers of sockets and of the front hold together.
LARGE = 24 * 1024**2
# Of a client, and of a server.
LIMIT, PAUSE = 4.0, 2.2


async def break_off(asked: Asked, peer: Peer) -> None:
    """Resets the connection in the middle of a stream without marks."""
    await peer.head(pairs=EVENTS)
    await peer.chunk(b"data: 1\n\n")
    await pause_loop(0.1)
    peer.cut()


async def read_all(served: FrontServed, version: str) -> tuple[bytes, bool]:
    """What a client of this version of HTTP gets, and whether the connection was reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"GET /x HTTP/{version}\r\nhost: a\r\n\r\n".encode())
    content, is_reset = b"", False
    try:
        while part := await reader.read(65536):
            content += part
    except ConnectionResetError:
        is_reset = True
    writer.close()
    return content.partition(b"\r\n\r\n")[2], is_reset


@pytest.mark.parametrize(
    ("version", "content", "is_reset"),
    [("1.1", b"9\r\ndata: 1\n\n\r\n", False), ("1.0", b"data: 1\n\n", True)],
)
def test_iso_2_an_answer_that_breaks_off_has_no_clean_end(version: str, content: bytes, is_reset: bool) -> None:
    """In chunks the last one is missing. Without chunks the end of the connection would be that of the answer."""

    async def run() -> tuple[bytes, bool]:
        engine = ScriptedEngine(break_off)
        async with running(engine), front_served([engine.address]) as served:
            return await read_all(served, version)

    assert asyncio.run(run()) == (content, is_reset)


def test_iso_2_a_client_of_http_1_1_is_told_that_the_answer_is_not_whole() -> None:
    async def run() -> Got:
        engine = ScriptedEngine(break_off)
        async with running(engine), front_served([engine.address]) as served:
            return await served.get("/x")

    got = asyncio.run(run())
    assert (got.status, got.content, got.is_whole) == (200, b"data: 1\n\n", False)


Read = Callable[[asyncio.StreamReader], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def reading(read: Read) -> AsyncIterator[str]:
    """A server that is ready, and reads the bodies of requests as `read` does. Yields its address."""

    serving = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"POST"):
                    await read(reader)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in filter(None, serving):
            task.cancel()
        await asyncio.wait(filter(None, serving))


async def passed(read: Read, body: Callable[[], AsyncIterator[bytes]], limit: float) -> Got:
    """The answer to a body that is too large to be kept."""
    limits = (f"http.head_timeout={limit}s", f"http.body_timeout={limit}s")
    async with reading(read) as address, front_served([address], *limits, memory=1024**2) as served:
        return await served.get("/v1/embeddings", "POST", data=body(), headers={"content-length": str(LARGE)})


async def at_once() -> AsyncIterator[bytes]:
    for _ in range(LARGE // 2**16):
        yield bytes(2**16)


async def after_a_pause() -> AsyncIterator[bytes]:
    yield bytes(LARGE - 1)
    await pause_loop(PAUSE)
    yield b"x"


async def never_ends() -> AsyncIterator[bytes]:
    yield bytes(LARGE - 1)
    await pause_loop(3600)


async def all_of_it(reader: asyncio.StreamReader) -> None:
    await reader.readexactly(LARGE)


async def all_after_a_pause(reader: asyncio.StreamReader) -> None:
    await pause_loop(PAUSE)
    await reader.readexactly(LARGE)


async def none_of_it(reader: asyncio.StreamReader) -> None:
    await pause_loop(3600)


@pytest.mark.parametrize(
    ("read", "body", "status", "code"),
    [
        (all_of_it, never_ends, 408, "request_timeout"),
        (none_of_it, at_once, 504, "upstream_timeout"),
    ],
)
def test_w31_of_a_body_that_passes_the_slow_side_is_to_blame(read: Read, body: Any, status: int, code: str) -> None:
    got = asyncio.run(passed(read, body, 1.0))
    assert (got.status, got.error["code"]) == (status, code)


def test_w31_the_time_of_a_server_does_not_count_for_its_client() -> None:
    """Together they take more than the limit for either."""
    assert asyncio.run(passed(all_after_a_pause, after_a_pause, LIMIT)).status == 200


def test_frt_4_a_client_that_leaves_while_its_server_is_silent_leaves_the_server_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(upstream, "PROBE_EVERY", 0.05)
    monkeypatch.setattr(upstream, "MAX_UNANSWERED", 1)
    ask, is_asked = upstream.Upstream._ask, asyncio.Event()

    async def noted(self: upstream.Upstream, path: str) -> int | None:
        if path == upstream.ALIVE:
            is_asked.set()
        return await ask(self, path)

    async def hang(asked: Asked, peer: Peer) -> None:
        await pause_loop(3600)

    async def run() -> None:
        engine = ScriptedEngine(hang, live=None)
        async with running(engine), front_served([engine.address]) as served:
            monkeypatch.setattr(upstream.Upstream, "_ask", noted)
            leaving = asyncio.create_task(served.get("/x"))
            await is_asked.wait()
            leaving.cancel()
            await ready(served)
            engine.health = 503
            async with asyncio.timeout(20):
                while served.front.upstreams.has_ready():
                    await pause_loop(0.01)

    asyncio.run(run())
