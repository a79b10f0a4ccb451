"""Streams through a front whose upstreams end in the middle: what the client gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from imp_service.front.relay import call
from imp_service.front.relay.names import Place
from support.run.pauses import pause_loop
from support.run.quick_run import Repeats
from support.servers.front_served import FrontServed, Got, front_served
from support.servers.scripted_engine import (
    EVENTS,
    Answer,
    Asked,
    Peer,
    ScriptedEngine,
    event,
    golden,
    mark,
    running,
    streaming,
    units,
)

N = 6


def first_is_cut_at(n_bytes: int) -> Callable[[Asked], int | None]:
    """Cuts the first answer after so many bytes."""
    left = [n_bytes]
    return lambda asked: left.pop() if left else None


def through(
    work: Callable[[FrontServed], Coroutine[Any, Any, Any]], *engines: ScriptedEngine, settings: tuple[str, ...] = ()
) -> Any:
    """The result of `work` with a front before these engines."""

    async def run() -> Any:
        async with running(*engines), front_served([engine.address for engine in engines], *settings) as served:
            return await work(served)

    return asyncio.run(run())


def shared(answer: Answer, n: int = 2) -> list[ScriptedEngine]:
    """Engines that answer alike."""
    return [ScriptedEngine(answer) for _ in range(n)]


def in_chunks_of(content: bytes, size: int) -> Answer:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        for begin in range(0, len(content), size):
            await peer.chunk(content[begin : begin + size])
        await peer.end()

    return answer


def test_iso_2_a_stream_that_is_cut_at_any_byte_comes_whole(repeats: Repeats) -> None:
    total = sum(map(len, units(N)))

    async def work(served: FrontServed) -> None:
        for cut in range(1, total, max(1, total // repeats(total))):
            for engine in engines:
                engine.answer = answer
            left[:] = [cut]
            got = await served.stream()
            assert (got.status, got.is_whole, got.content) == (200, True, golden(N)), cut

    left: list[int] = []
    answer = streaming(N, cut_at=lambda asked: left.pop() if left else None)
    engines = shared(answer)
    through(work, *engines)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_iso_2_the_next_server_gets_the_same_body_with_what_was_told(path: str) -> None:
    engines = shared(streaming(N, cut_at=first_is_cut_at(len(b"".join(units(N)[:3])))))
    got: Got = through(lambda served: served.stream(path, model="m", seed=3), *engines)
    assert got.content == golden(N)
    first, second = (asked.fields for engine in engines for asked in engine.asked)
    first, second = sorted((first, second), key=lambda fields: len(fields["resume"]))
    assert first == {"stream": True, "model": "m", "seed": 3, "resume": {}}
    assert second.pop("resume")["sequences"] == [{"token_ids": [10, 11], "finished": False}]
    assert second == {"stream": True, "model": "m", "seed": 3}
    assert {asked.headers["imp-resumes"] for engine in engines for asked in engine.asked} == {"1"}


def test_iso_2_a_server_that_leaves_is_followed_by_another() -> None:
    async def leaving(asked: Asked, peer: Peer) -> None:
        if asked.resume:
            await streaming(N)(asked, peer)
            return
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(units(N)[:4]) + mark(end="DRAINING"))
        await peer.end()

    assert through(FrontServed.stream, *shared(leaving)).content == golden(N)


def test_iso_2_a_server_that_hangs_is_left_after_five_seconds() -> None:
    async def hanging(asked: Asked, peer: Peer) -> None:
        if asked.resume:
            await streaming(N)(asked, peer)
            return
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(units(N)[:4]))
        engines[0].health = engines[0].live = None
        engines[1].health = 200
        await pause_loop(60)

    async def work(served: FrontServed) -> Got:
        engines[1].health = 503
        await pause_loop(0.3)
        return await served.stream()

    engines = shared(hanging)
    assert through(work, *engines).content == golden(N)
    assert [len(engine.asked) for engine in engines] == [1, 1]


def test_iso_2_a_server_that_hangs_after_its_address_has_gone_is_left_too() -> None:
    async def hanging(asked: Asked, peer: Peer) -> None:
        if asked.resume:
            await streaming(N)(asked, peer)
            return
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(units(N)[:4]))
        engines[0].health = engines[0].live = None
        engines[1].health = 200
        gone.set()
        await pause_loop(60)

    async def work(served: FrontServed) -> Got:
        engines[1].health = 503
        await pause_loop(0.3)
        asking = asyncio.create_task(served.stream())
        await gone.wait()
        served.front.upstreams.drop(Place(engines[0].address))
        async with asyncio.timeout(20):
            return await asking

    engines, gone = shared(hanging), asyncio.Event()
    assert through(work, *engines).content == golden(N)


def test_iso_6_a_server_that_is_slow_but_answers_is_not_left() -> None:
    async def slow(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        begun = b"".join(units(N)[:4])
        await peer.chunk(begun)
        await pause_loop(7)
        await peer.chunk(b"".join(units(N)[4:]))
        await peer.end()

    engines = shared(slow)
    engines[0].live = engines[1].live = 404
    assert through(FrontServed.stream, *engines).content == golden(N)
    assert sum(len(engine.asked) for engine in engines) == 1


def test_iso_2_three_attempts_without_a_new_token_are_the_most() -> None:
    async def dying(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        if not asked.resume:
            await peer.chunk(b"".join(units(N)[:4]))
            await pause_loop(0.01)
        peer.cut()

    engines = shared(dying)
    got = through(FrontServed.stream, *engines)
    sent, _, error = got.content.removesuffix(b"\n\n").rpartition(b"data: ")
    assert sent == golden(N)[: len(sent)]
    assert json.loads(error)["error"]["code"] == "upstream_lost"
    assert got.is_whole
    assert sum(len(engine.asked) for engine in engines) == 3


def test_iso_2_a_new_token_makes_three_new_attempts() -> None:
    async def one_token_each(asked: Asked, peer: Peer) -> None:
        sent = units(N, asked.resume)
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(sent[:2]))
        if len(sent) == 2:
            await peer.end()
            return
        await pause_loop(0.01)
        peer.cut()

    assert through(FrontServed.stream, *shared(one_token_each)).content == golden(N)


def refusing(status: int, body: bytes, headers: tuple[tuple[str, str], ...] = (), *, times: int = 100) -> Answer:
    """Cuts a stream, and refuses so often to go on with it."""
    n_refused = [0]

    async def answer(asked: Asked, peer: Peer) -> None:
        if not asked.resume:
            await peer.head(pairs=EVENTS)
            await peer.chunk(b"".join(units(N)[:4]))
            await pause_loop(0.01)
            peer.cut()
        elif n_refused[0] < times:
            n_refused[0] += 1
            length = ("content-length", str(len(body)))
            await peer.head(status, [length, *headers], chunked=False)
            await peer.send(body)
        else:
            await streaming(N)(asked, peer)

    return answer


@pytest.mark.parametrize(
    ("path", "begin"),
    [
        ("/v1/chat/completions", b"data: "),
        ("/v1/messages", b"event: error\ndata: "),
        ("/v1/responses", b"event: error\ndata: "),
    ],
)
def test_c12_a_refusal_to_go_on_ends_the_stream_with_its_first_error(path: str, begin: bytes) -> None:
    body = b'{"error":{"message":"RESUME_MISMATCH"}}'
    got = through(lambda served: served.stream(path), *shared(refusing(400, body)))
    sent, error = golden(N)[: len(golden(N)) - len(got.content)], got.content[got.content.index(begin + b'{"') :]
    assert got.is_whole
    assert b"upstream_lost" in error or b"api_error" in error
    assert b"RESUME_MISMATCH" in error
    assert golden(N).startswith(sent)


def test_x01_a_busy_server_is_asked_again() -> None:
    again = (("retry-after-ms", "20"),)
    for status in (429, 503):
        engines = shared(refusing(status, b"{}", again, times=5))
        assert through(FrontServed.stream, *engines).content == golden(N)


def test_x01_a_server_that_stays_busy_ends_the_stream_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "PATIENCE", 0.3)
    engines = shared(refusing(429, b"{}", (("retry-after-ms", "0"),), times=1000))

    async def run() -> Got:
        async with running(*engines), front_served([each.address for each in engines], heartbeat=0.1) as served:
            return await served.stream()

    got = asyncio.run(run())
    assert b"upstream_lost" in got.content
    assert b": waiting\n\n" in got.content
    assert got.is_whole
    assert sum(len(engine.asked) for engine in engines) < 30


def test_c12_a_server_that_ends_while_it_refuses_to_go_on_is_followed_by_another() -> None:
    n_cut = [0]

    async def ending(asked: Asked, peer: Peer) -> None:
        if not asked.resume:
            await peer.head(pairs=EVENTS)
            await peer.chunk(b"".join(units(N)[:4]))
            await pause_loop(0.01)
            peer.cut()
        elif not n_cut[0]:
            n_cut[0] = 1
            await peer.head(429, [("content-length", "100")], chunked=False)
            await pause_loop(0.05)
            peer.cut()
        else:
            await streaming(N)(asked, peer)

    assert through(FrontServed.stream, *shared(ending)).content == golden(N)


def test_iso_3_a_stream_of_known_length_is_whole_without_its_marks() -> None:
    async def measured(asked: Asked, peer: Peer) -> None:
        content = b"".join(units(N))
        await peer.head(pairs=[*EVENTS, ("content-length", str(len(content)))], chunked=False)
        await peer.send(content)

    got = through(FrontServed.stream, ScriptedEngine(measured))
    assert (got.content, got.is_whole) == (golden(N), True)


def test_frt_2_an_answer_that_begins_anew_is_not_joined() -> None:
    async def forgetful(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        if asked.resume:
            await peer.chunk(event(10) + event(11))
            await peer.end()
            return
        await peer.chunk(b"".join(units(N)[:4]))
        await pause_loop(0.01)
        peer.cut()

    got = through(FrontServed.stream, *shared(forgetful))
    assert got.content.count(event(10)) == 1
    assert b"upstream_lost" in got.content


def test_iso_2_a_request_without_a_stream_is_sent_again() -> None:
    async def once(asked: Asked, peer: Peer) -> None:
        if len(engines[0].asked) + len(engines[1].asked) == 1:
            await peer.head(pairs=[("content-length", "1000")], chunked=False)
            await peer.send(b"half")
            await pause_loop(0.01)
            peer.cut()
        else:
            await peer.reply(b'{"whole":true}')

    engines = shared(once)
    got = through(lambda served: served.get("/v1/chat/completions", "POST", json={"messages": []}), *engines)
    assert (got.status, got.content) == (200, b'{"whole":true}')
    assert [asked.body for engine in engines for asked in engine.asked] == [b'{"messages": []}'] * 2


def test_iso_7_a_call_waits_for_a_server_and_then_gives_up() -> None:
    engine = ScriptedEngine(streaming(N), health=503)

    async def work(served: FrontServed) -> tuple[Got, Got]:
        asyncio.get_running_loop().call_later(0.5, lambda: setattr(engine, "health", 200))
        late = await served.stream()
        engine.health = 503
        engine.kill()
        await pause_loop(1.5)
        return late, await served.stream()

    async def run() -> tuple[Got, Got]:
        async with running(engine), front_served([engine.address], hold=1.0) as served:
            return await work(served)

    late, never = asyncio.run(run())
    assert late.content == golden(N)
    assert (never.status, never.error["code"], never.headers["retry-after"]) == (503, "not_ready", "1")


def test_iso_2_while_a_broken_stream_waits_comments_are_sent() -> None:
    engine = ScriptedEngine(streaming(N, cut_at=first_is_cut_at(300)))

    async def run() -> Got:
        async with running(engine), front_served([engine.address], heartbeat=0.2) as served:
            asking = asyncio.create_task(served.stream())
            while not engine.asked:
                await pause_loop(0.01)
            engine.health = 503
            await pause_loop(1.5)
            engine.health = 200
            return await asking

    got = asyncio.run(run())
    assert got.content.count(b": waiting\n\n") >= 2
    assert got.content.replace(b": waiting\n\n", b"") == golden(N)


def test_w31_a_body_that_does_not_fit_is_relayed_but_not_resumed() -> None:
    text = "x" * 300_000

    async def run() -> tuple[Got, int, int]:
        engines = shared(streaming(N, cut_at=lambda asked: 300))
        async with running(*engines), front_served([each.address for each in engines], memory=200_000) as served:
            cut = await served.stream(text=text)
            for engine in engines:
                engine.answer = in_chunks_of(golden(N), 10)
            whole = await served.stream(text=text)
            asked = [json.loads(asked.body)["text"] == text for each in engines for asked in each.asked]
            assert asked == [True, True]
            assert whole.content == golden(N)
            return cut, served.front.n_unresumable, served.front.memory.n_bytes

    cut, n_unresumable, n_bytes = asyncio.run(run())
    assert not cut.is_whole
    assert (n_unresumable, n_bytes) == (2, 0)


def test_iso_3_a_client_that_resumes_by_itself_gets_the_marks() -> None:
    async def work(served: FrontServed) -> Got:
        return await served.stream(resume={})

    engines = shared(streaming(N))
    assert through(work, *engines).content == b"".join(units(N))
