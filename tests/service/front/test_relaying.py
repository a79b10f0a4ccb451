"""What passes a front in either direction: paths, heads and bodies, clients that leave or do not read, and loops."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from imp_service.front.relay.names import Place
from imp_service.front.relay.upstreams import MAX_UPSTREAMS, Upstreams
from support.run.pauses import pause_loop
from support.run.quick_run import Repeats
from support.servers.front_served import FrontServed, Got, front_served
from support.servers.scripted_engine import (
    EVENTS,
    Asked,
    Peer,
    ScriptedEngine,
    event,
    golden,
    running,
    streaming,
    units,
)


async def echo(asked: Asked, peer: Peer) -> None:
    """Answers with what arrived."""
    content = json.dumps({"method": asked.method, "target": asked.target, "body": asked.body.decode()}).encode()
    pairs = [("content-type", "application/json"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-own", "é")]
    await peer.head(201, [*pairs, ("content-length", str(len(content)))], chunked=False)
    if asked.method != "HEAD":
        await peer.send(content)


def through(work: Callable[[FrontServed], Coroutine[Any, Any, Any]], engine: ScriptedEngine) -> Any:
    """The result of `work` with a front before this engine."""

    async def run() -> Any:
        async with running(engine), front_served([engine.address], "connection.max_connections=4096") as served:
            return await work(served)

    return asyncio.run(run())


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "target", ["/v1/models/a%2Fb?x=1&y=%20", "/%7Euser/../x", "/?a", "/v1/chat/completions", "//a"]
)
def test_iso_3_target_method_and_body_arrive_unchanged(method: str, target: str) -> None:
    async def work(served: FrontServed) -> Got:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"{method} {target} HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + b'{"a"}')
        content = await reader.read()
        writer.close()
        return Got(int(content.split(b" ")[1]), {}, content.rpartition(b"\r\n\r\n")[2])

    got = through(work, ScriptedEngine(echo))
    assert got.status == 201
    assert json.loads(got.content) == {"method": method, "target": target, "body": '{"a"}'}


def test_iso_3_a_body_that_asks_for_no_stream_is_not_changed() -> None:
    for body in (b'{"messages":[]}', b"[]", b'{"stream":', b"", b'{"stream":true', b"x" * 100_000):

        async def work(served: FrontServed, body: bytes = body) -> bytes:
            got = await served.get("/v1/chat/completions", "POST", data=body)
            return str(json.loads(got.content)["body"]).encode()

        assert through(work, ScriptedEngine(echo)) == body


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ('{"stream":true}', '{"stream":true,"resume":{}}'),
        ('{"stream":true} \n', '{"stream":true,"resume":{}} \n'),
        ('{"stream":true,}', '{"stream":true,,"resume":{}}'),
        ('{"stream":true,"resume":{}}', '{"stream":true,"resume":{}}'),
        ('{"stream":true,"x":"\\"resume\\""}', '{"stream":true,"x":"\\"resume\\"","resume":{}}'),
        ('{"stream":true,"x":["resume"]}', '{"stream":true,"x":["resume"],"resume":{}}'),
    ],
)
def test_iso_3_a_request_for_a_stream_also_asks_for_marks(body: str, sent: str) -> None:
    async def work(served: FrontServed) -> str:
        got = await served.get("/v1/chat/completions", "POST", data=body.encode())
        return str(json.loads(got.content)["body"])

    assert through(work, ScriptedEngine(echo)) == sent


def test_iso_3_the_head_of_an_answer_passes() -> None:
    async def work(served: FrontServed) -> Any:
        async with served.session.head(f"{served.url}/x") as response:
            return response.status, response.headers, await response.read()

    status, headers, content = through(work, ScriptedEngine(echo))
    assert (status, content, headers.getall("set-cookie"), headers["x-own"]) == (201, b"", ["a=1", "b=2"], "é")
    assert int(headers["content-length"]) > 0


def test_iso_3_headers_pass_but_those_of_one_connection() -> None:
    engine = ScriptedEngine(echo)
    sent = {"authorization": "Bearer x", "x-request-id": "7", "connection": "x-hop", "x-hop": "1", "te": "trailers"}

    async def work(served: FrontServed) -> None:
        await served.get("/x", headers=sent)

    through(work, engine)
    arrived = engine.asked[0].headers
    assert (arrived["authorization"], arrived["x-request-id"]) == ("Bearer x", "7")
    assert not {"x-hop", "te", "transfer-encoding", "imp-resumes"} & arrived.keys()
    assert arrived["via"].startswith("1.1 imp-")


def test_iso_3_what_names_a_page_reaches_the_server_whatever_the_connection_says() -> None:
    engine = ScriptedEngine(echo)
    sent = {"host": "evil.example", "origin": "http://evil.example", "connection": "host, origin"}

    async def work(served: FrontServed) -> None:
        await served.get("/x", headers=sent)

    through(work, engine)
    arrived = engine.asked[0].headers
    assert (arrived["host"], arrived["origin"]) == ("evil.example", "http://evil.example")


@pytest.mark.parametrize("is_child", [True, False])
def test_iso_18_only_the_fronts_own_process_is_told_who_the_client_is(is_child: bool) -> None:
    async def run() -> tuple[dict[str, str], str]:
        engine = ScriptedEngine(echo)
        async with running(engine), front_served([] if is_child else [engine.address]) as served:
            if is_child:
                served.front.upstreams.add_child().started(engine.address)
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\nimp-peer: forged\r\nconnection: close\r\n\r\n")
            await reader.read()
            port = writer.get_extra_info("sockname")[1]
            writer.close()
            return engine.asked[0].headers, f"ipv4:127.0.0.1:{port}"

    headers, peer = asyncio.run(run())
    assert headers.get("imp-peer") == (peer if is_child else None)


def test_frt_2_a_stream_whose_marks_are_read_is_not_asked_for_in_compressed_form() -> None:
    engine = ScriptedEngine(echo)

    async def work(served: FrontServed) -> None:
        for body in (b'{"stream":true}', b"{}"):
            await served.get("/v1/chat/completions", "POST", data=body, headers={"accept-encoding": "gzip"})

    through(work, engine)
    assert ["accept-encoding" in asked.headers for asked in engine.asked] == [False, True]


def test_c06_health_is_ready_for_two_seconds_more_and_live_speaks_of_the_front() -> None:
    engine = ScriptedEngine(echo)

    async def work(served: FrontServed) -> list[tuple[int, int]]:
        found = []
        while (await served.get("/health")).status != 200:
            await pause_loop(0.01)
        engine.kill()
        for seconds in (1.2, 2.5):
            await pause_loop(seconds)
            found.append(((await served.get("/health")).status, (await served.get("/health/live")).status))
        await engine.start()
        while (await served.get("/health")).status != 200:
            await pause_loop(0.01)
        served.front.leave()
        found.append(((await served.get("/health")).status, (await served.get("/x")).status))
        return found

    assert through(work, engine) == [(200, 200), (503, 200), (503, 201)]


def test_w32_a_front_before_itself_never_gets_ready_and_refuses_the_loop() -> None:
    async def run() -> tuple[int, Got]:
        engine = ScriptedEngine(echo)
        async with running(engine), front_served([engine.address], hold=0.5) as served:
            served.front.upstreams.add(Place(f"127.0.0.1:{served.port}"))
            await pause_loop(0.5)
            via = served.front.upstreams.via
            return (await served.get("/health")).status, await served.get("/x", headers={"via": f"1.0 a, {via}"})

    ready, looped = asyncio.run(run())
    assert (ready, looped.status, looped.error["code"]) == (200, 508, "loop")


def test_w32_names_that_resolve_to_nothing_or_to_a_thousand_addresses() -> None:
    async def resolved(count: int) -> int:
        loop = asyncio.get_running_loop()
        infos = [(2, 1, 6, "", (f"127.1.{i // 250}.{i % 250 + 1}", 9)) for i in range(count)]

        async def getaddrinfo(*_: Any, **__: Any) -> Any:
            if not infos:
                raise OSError(-2, "Name or service not known")
            return infos

        loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]
        async with front_served(["imp.example:9"], hold=0.2) as served:
            assert (await served.get("/x")).status == 503
            return len(served.front.upstreams.all)

    assert asyncio.run(resolved(0)) == 0
    assert asyncio.run(resolved(3)) == 3
    assert asyncio.run(resolved(1000)) == MAX_UPSTREAMS


def test_w32_a_name_is_resolved_again_and_follows_its_addresses() -> None:
    async def run() -> list[list[str]]:
        found, hosts = [], ["127.0.0.1", "127.0.0.2"]

        async def getaddrinfo(*_: Any, **__: Any) -> Any:
            return [(2, 1, 6, "", (host, 9)) for host in hosts]

        asyncio.get_running_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign]
        async with front_served(["imp.example:9"]) as served:
            upstreams: Upstreams = served.front.upstreams
            found.append(sorted(each.address for each in upstreams.all))
            hosts[:] = ["127.0.0.2", "127.0.0.3"]
            await upstreams.resolve()
            found.append(sorted(each.address for each in upstreams.all))
        return found

    assert asyncio.run(run()) == [["127.0.0.1:9", "127.0.0.2:9"], ["127.0.0.2:9", "127.0.0.3:9"]]


def test_frt_1_a_name_that_cannot_be_resolved_keeps_its_servers_and_hides_no_others() -> None:
    async def run() -> list[list[str]]:
        found: list[list[str]] = []
        known: dict[str, str] = {}

        async def getaddrinfo(host: str, *_: Any, **__: Any) -> Any:
            if host not in known:
                raise OSError(-2, "Name or service not known")
            return [(2, 1, 6, "", (known[host], 9))]

        async with front_served(["no..name:9"]) as served:
            found.append([each.address for each in served.front.upstreams.all])
        asyncio.get_running_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign]
        async with front_served(["gone.example:9", "a:9", "b:9"]) as served:
            for now in ({"a": "127.0.0.1"}, {"b": "127.0.0.2"}, {"a": "127.0.0.3"}):
                known.clear()
                known.update(now)
                await served.front.upstreams.resolve()
                found.append(sorted(each.address for each in served.front.upstreams.all))
        return found

    one, two, three = "127.0.0.1:9", "127.0.0.2:9", "127.0.0.3:9"
    assert asyncio.run(run()) == [[], [one], [one, two], [two, three]]


def test_frt_1_the_ready_server_with_fewest_calls_is_asked() -> None:
    async def run() -> list[int]:
        engines = [ScriptedEngine(streaming(200, pause=0.005)) for _ in range(3)]
        engines[2].health = 503
        async with running(*engines), front_served([each.address for each in engines]) as served:
            while sum(each.is_ready for each in served.front.upstreams.all) < 2:
                await pause_loop(0.01)
            got = await asyncio.gather(*(served.stream() for _ in range(20)))
            assert {each.content for each in got} == {golden(200)}
            return [len(each.asked) for each in engines]

    assert asyncio.run(run()) == [10, 10, 0]


@pytest.mark.parametrize("way", ["reset", "half-close", "before the answer"])
def test_frt_4_a_client_that_leaves_is_noticed_by_the_server(way: str) -> None:
    ended = asyncio.Event()

    async def endless(asked: Asked, peer: Peer) -> None:
        with contextlib.suppress(ConnectionError):
            if way == "before the answer":
                await pause_loop(0.5)
            await peer.head(pairs=EVENTS)
            for i in range(10**6):
                await peer.chunk(event(i))
                await pause_loop(0.001)
        ended.set()

    async def work(served: FrontServed) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        body = b'{"stream":true}'
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        if way == "before the answer":
            await pause_loop(0.2)
        else:
            await reader.readuntil(b"3")
        if way == "half-close":
            writer.write_eof()
        else:
            writer.transport.abort()
        await asyncio.wait_for(ended.wait(), 10)
        writer.close()
        while served.front.n_open:
            await pause_loop(0.01)
        return served.front.memory.n_bytes

    assert through(work, ScriptedEngine(endless)) == 0


def test_frt_4_a_client_that_does_not_read_stops_the_server() -> None:
    n_sent = [0]

    async def endless(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.chunk(b"data: " + b"x" * 1000 + b"\n\n")
                n_sent[0] += 1000

    async def work(served: FrontServed) -> tuple[int, int]:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        body = b'{"stream":true}'
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        before = -1
        while n_sent[0] != before:
            before = n_sent[0]
            await pause_loop(1.0)
        writer.transport.abort()
        return before, served.front.n_open

    n_bytes, n_open = through(work, ScriptedEngine(endless))
    # Almost all of it is in the buffers of the system.
    assert 0 < n_bytes < 16 * 1024**2
    assert n_open == 1


def test_frt_4_two_thousand_streams_at_once_take_little_memory_each(repeats: Repeats) -> None:
    n_streams = repeats(2000)
    n_waiting, may_end = [0], asyncio.Event()

    async def held(asked: Asked, peer: Peer) -> None:
        sent = units(8)
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"".join(sent[:4]))
        n_waiting[0] += 1
        await may_end.wait()
        await peer.chunk(b"".join(sent[4:]))
        await peer.end()

    async def work(served: FrontServed) -> int:
        before = resident()
        asking = [asyncio.create_task(served.stream()) for _ in range(n_streams)]
        while n_waiting[0] < n_streams:
            assert not any(each.done() for each in asking)
            await pause_loop(0.05)
        n_bytes = resident() - before
        may_end.set()
        assert {each.content for each in await asyncio.gather(*asking)} == {golden(8)}
        return n_bytes

    # Client, front and server are in this process: three ends of two connections each.
    assert through(work, ScriptedEngine(held)) < n_streams * 3 * 64 * 1024


def resident() -> int:
    """Bytes of this process in memory."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
