"""A front before a gateway, whose answers are not all those of a server of imp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.run.pauses import pause_loop
from support.servers.front_served import FrontServed, Got, front_served
from support.servers.scripted_engine import (
    EVENTS,
    Answer,
    Asked,
    Peer,
    ScriptedEngine,
    golden,
    running,
    streaming,
    units,
)

N = 6
# What SMG writes where its server ends.
BROKEN_OFF = b'data: {"error":{"message":"Stream error","type":"stream_error"}}\n\ndata: [DONE]\n\n'


def through(work: Callable[[FrontServed], Coroutine[Any, Any, Got]], *answers: Answer) -> tuple[Got, ScriptedEngine]:
    """What `work` gets of a front before a gateway with these answers, and the gateway. The last answer is repeated."""
    left = [*answers]

    async def answer(asked: Asked, peer: Peer) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(asked, peer)

    engine = ScriptedEngine(answer)

    async def run() -> Got:
        async with running(engine), front_served([engine.address]) as served:
            return await work(served)

    return asyncio.run(run()), engine


def broken_off_at(n_bytes: int) -> Answer:
    """The gateway ends the stream by itself after so many bytes."""

    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(units(N, asked.resume))[:n_bytes] + BROKEN_OFF)
        await peer.end()

    return answer


def status(code: int, *pairs: tuple[str, str]) -> Answer:
    async def answer(asked: Asked, peer: Peer) -> None:
        content = b"no"
        await peer.head(code, [("content-length", str(len(content))), *pairs], chunked=False)
        await peer.send(content)

    return answer


@pytest.mark.parametrize("n_bytes", [0, 40, 230, 400, 520])
def test_frt_3_a_stream_that_a_gateway_ends_with_an_error_goes_on(n_bytes: int) -> None:
    got, engine = through(FrontServed.stream, broken_off_at(n_bytes), streaming(N))
    assert (got.status, got.is_whole, got.content) == (200, True, golden(N))
    assert len(engine.asked) == 2


@pytest.mark.parametrize("code", [500, 502, 504])
def test_frt_5_a_failure_of_the_gateway_is_asked_again(code: int) -> None:
    got, engine = through(FrontServed.stream, broken_off_at(300), status(code), streaming(N))
    assert (got.content, len(engine.asked)) == (golden(N), 3)
    got, engine = through(lambda served: served.get("/v1/models"), status(code))
    assert (got.status, got.error["code"], len(engine.asked)) == (502, "upstream_lost", 3)
    assert f"{code} no" in got.error["message"]


@pytest.mark.parametrize("own", [("server", "imp"), ("imp-instance-id", "a1")])
def test_iso_3_a_failure_of_imp_passes_as_it_is(own: tuple[str, str]) -> None:
    got, engine = through(lambda served: served.get("/v1/models"), status(500, own))
    assert (got.status, got.content, len(engine.asked)) == (500, b"no", 1)


@pytest.mark.parametrize("code", [400, 422])
def test_frt_3_a_gateway_that_refuses_the_field_gets_the_body_of_the_client(code: int) -> None:
    async def plain(asked: Asked, peer: Peer) -> None:
        assert asked.fields == {"stream": True, "input": "a"}
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"data: 1\n\n")
        await peer.end()

    async def work(served: FrontServed) -> Got:
        got = await served.stream("/v1/responses", input="a")
        assert served.front.n_unresumable == 1
        return got

    got, engine = through(work, status(code), plain)
    assert (got.content, len(engine.asked)) == (b"data: 1\n\n", 2)


def test_iso_3_a_refusal_of_imp_passes_as_it_is() -> None:
    got, engine = through(FrontServed.stream, status(400, ("server", "imp")))
    assert (got.status, got.content, len(engine.asked)) == (400, b"no", 1)


def test_frt_5_a_path_below_a_prefix_goes_on_too() -> None:
    got, engine = through(lambda served: served.stream("/imp/v1/chat/completions"), broken_off_at(300), streaming(N))
    assert got.content == golden(N)
    assert {asked.target for asked in engine.asked} == {"/imp/v1/chat/completions"}


def test_frt_7_a_request_that_a_gateway_refuses_as_the_client_wrote_it_is_no_stream() -> None:
    async def work(served: FrontServed) -> Got:
        got = await served.stream()
        assert served.front.n_unresumable == 0
        return got

    got, engine = through(work, status(400))
    assert (got.status, got.content, len(engine.asked)) == (400, b"no", 2)


def test_frt_3_a_client_learns_how_each_gateway_ended_its_stream() -> None:
    got, engine = through(FrontServed.stream, broken_off_at(0))
    assert (got.status, got.error["message"], len(engine.asked)) == (502, "Stream error", 3)


FOREIGN = {
    "llama-server": (
        b'{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}',
        400,
        "too long",
    ),
    "vLLM": (b'{"error": {"message": "no such tool", "type": "BadRequestError", "code": 404}}', 404, "no such tool"),
    "a name as code": (b'{"error":{"message":"m","code":"context_length_exceeded"}}', 502, "m"),
    "a text": (b'{"error":"it failed"}', 502, "it failed"),
    "busy": (b'{"error":{"code":429,"message":"slow down"}}', 429, "slow down"),
    "its fault": (b'{"error":{"code":500,"message":"out of memory"}}', 500, "out of memory"),
    "no status": (b'{"error":{"code":200,"message":"m"}}', 502, "m"),
    "a list as code": (b'{"error":{"code":[400],"message":"m"}}', 502, "m"),
    "no text": (b'{"error":{"code":400}}', 400, '{"error":{"code":400}}'),
    "no JSON": (b'{"error":', 502, '{"error":'),
}


@pytest.mark.parametrize("n_bytes", [3, 15, 1000])
@pytest.mark.parametrize(("sent", "code", "message"), FOREIGN.values(), ids=FOREIGN)
def test_frt_3_an_error_in_place_of_a_stream_keeps_its_text_and_status(
    sent: bytes, code: int, message: str, n_bytes: int
) -> None:
    """One that says that the request is wrong is not asked for again. It may come in parts."""

    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        end = b"\r\n\r\n" if n_bytes == 15 else b"\n\n"
        content = b"data: " + sent + end + b"data: [DONE]" + end
        for part in (content[:n_bytes], content[n_bytes:]):
            if part:
                await peer.chunk(part)
                await pause_loop(0.01)
        await peer.end()

    got, engine = through(FrontServed.stream, answer)
    assert (got.status, got.error["message"]) == (code, message)
    assert len(engine.asked) == (1 if code < 500 else 3)


def test_frt_3_an_error_behind_a_comment_alone_is_the_answer() -> None:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        await peer.chunk(b": ping\n\n")
        await pause_loop(0.01)
        await peer.chunk(b'data: {"error":{"code":400,"message":"too long"}}\n\n')
        await peer.end()

    async def work(served: FrontServed) -> Got:
        got = await served.stream()
        assert served.front.n_lost == 0
        return got

    got, engine = through(work, answer)
    assert b"too long" in got.content
    assert len(engine.asked) == 1


def test_frt_3_an_error_in_place_of_the_rest_ends_the_stream_with_its_first_error() -> None:
    async def refuses(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        await peer.chunk(b'data: {"error":{"code":400,"message":"no"}}\n\n')
        await peer.end()

    got, engine = through(FrontServed.stream, broken_off_at(300), refuses)
    assert got.content.startswith(golden(N)[:20]) and b"ended in the middle" in got.content
    assert len(engine.asked) == 3


def test_frt_3_a_stream_whose_client_has_the_last_event_is_complete() -> None:
    async def breaks_at_the_end(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(units(N)))
        await pause_loop(0.05)
        peer.cut()

    async def work(served: FrontServed) -> Got:
        got = await served.stream()
        assert served.front.n_lost == 0
        return got

    got, engine = through(work, breaks_at_the_end)
    assert (got.content, got.is_whole, len(engine.asked)) == (golden(N), True, 1)
