"""Upstreams that break every rule: the client gets a typed error, within bounds."""

from __future__ import annotations

import asyncio
import json
import resource

import pytest

from support.run.pauses import pause_loop
from support.run.quick_run import Repeats
from support.servers.front_served import FrontServed, Got, front_served
from support.servers.scripted_engine import EVENTS, HEAD, Answer, Asked, Peer, ScriptedEngine, mark, running

MEMORY = 4 * 1024**2
BEGUN = mark(**HEAD, events=0)


def events(*pieces: bytes, times: int = 1, pause: float = 0.0) -> Answer:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        for _ in range(times):
            for piece in pieces:
                await peer.chunk(piece)
                await pause_loop(pause)
        await peer.end()

    return answer


def raw(*pieces: bytes, times: int = 1, closes: bool = True) -> Answer:
    async def answer(asked: Asked, peer: Peer) -> None:
        for piece in pieces[:-1]:
            await peer.send(piece)
        for _ in range(times):
            await peer.send(pieces[-1])
        if closes:
            peer.writer.close()

    return answer


def asked_of(answer: Answer, *, streams: bool = True) -> tuple[Got, int]:
    """What a client gets, and the bytes that are still counted afterwards."""

    async def run() -> tuple[Got, int]:
        engine = ScriptedEngine(answer)
        async with running(engine), front_served([engine.address], memory=MEMORY) as served:
            got = await (served.stream() if streams else served.get("/v1/models"))
            await until_quiet(served)
            return got, served.front.memory.n_bytes

    return asyncio.run(run())


async def until_quiet(served: FrontServed) -> None:
    while served.front.n_open:
        await pause_loop(0.01)


HOSTILE: dict[str, Answer] = {
    "a forged mark": events(BEGUN, b": imp {}{}\n\n"),
    "a mark of another stream": events(BEGUN, mark(**{**HEAD, "id": "other"}, events=0)),
    "a huge mark": events(BEGUN, b": imp [" + b"1," * 200_000, times=2),
    "endless marks": events(BEGUN, *[mark(told=[[0, list(range(20_000))]], events=0)] * 200),
    "an event without end": events(BEGUN, b"data: ", *[b"x" * 65536] * 100),
    "a unit without end": events(
        BEGUN, mark(told=[[0, [1]]], events=60_000), *[b"data: " + b"x" * 9000 + b"\n\n"] * 900
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_frt_2_a_stream_that_no_server_of_imp_sends_ends_with_502(name: str) -> None:
    got, n_bytes = asked_of(HOSTILE[name])
    assert (got.status, got.error["code"]) == (502, "upstream_invalid")
    assert n_bytes == 0


def test_frt_2_a_bad_mark_in_the_middle_ends_the_stream_with_an_error() -> None:
    good = mark(told=[[0, [1]]], events=1) + b"data: 1\n\n"
    got, _ = asked_of(events(BEGUN, good, b": imp {\n\n", pause=0.1))
    first, error, last = got.content.split(b"\n\n")
    assert (first, last, got.is_whole) == (b"data: 1", b"", True)
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "upstream_invalid"


NO_HTTP: dict[str, Answer] = {
    "no HTTP": raw(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "a head without end": raw(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 1000, times=100),
    "a long line": raw(b"HTTP/1.1 200 OK\r\nx: ", b"y" * 1000, times=1000),
    "a chunk that is no number": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
    "fewer bytes than promised": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc"),
    "two lengths": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"),
    "nothing": raw(b""),
}


@pytest.mark.parametrize("name", NO_HTTP)
def test_c07_an_answer_that_is_no_http_is_502(name: str) -> None:
    got, n_bytes = asked_of(NO_HTTP[name], streams=False)
    assert (got.status, got.error["code"]) == (502, "upstream_lost")
    assert n_bytes == 0


def test_frt_2_more_bytes_than_promised_are_not_passed_on() -> None:
    got, _ = asked_of(
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\r\n\r\n"), streams=False
    )
    assert (got.status, got.content) == (200, b"abc")


def test_frt_2_two_gibibytes_pass_in_little_memory(repeats: Repeats) -> None:
    is_whole = repeats(5) == 5  # a quick run makes a fifth
    n_bytes = 2 * 1024**3 if is_whole else 64 * 1024**2
    piece = b"x" * 1024**2

    async def run() -> int:
        answer = raw(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % n_bytes, piece, times=n_bytes // len(piece), closes=False
        )
        engine = ScriptedEngine(answer)
        async with running(engine), front_served([engine.address]) as served:
            n_read = 0
            async with served.session.get(f"{served.url}/large") as response:
                async for each in response.content.iter_any():
                    n_read += len(each)
            return n_read

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert asyncio.run(run()) == n_bytes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
