"""The metrics of a front: what it counts, and who answers a scraper."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from imp_service.config import read_settings
from imp_service.config.server_settings import LogSettings
from imp_service.front.relay import upstream
from imp_service.front.relay.front import Front
from imp_service.front.relay.server import FrontServer
from imp_service.front.relay.state import front_options
from imp_service.front.relay.upstreams import Upstreams
from imp_service.telemetry.log import Log
from support.run.pauses import pause_loop
from support.servers.front_served import FrontServed, front_served
from support.servers.scripted_engine import (
    DONE,
    EVENTS,
    Answer,
    Asked,
    Peer,
    ScriptedEngine,
    golden,
    mark,
    running,
    streaming,
    units,
)

ENGINES = b"# TYPE imp_x counter\nimp_x_total 7.0\n"


def values(page: bytes) -> Mapping[str, float]:
    """The samples of a page, by name and labels."""
    samples = [sample for family in text_string_to_metric_families(page.decode()) for sample in family.samples]
    return {".".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


async def scrape(served: FrontServed) -> Mapping[str, float]:
    got = await served.get("/metrics")
    assert got.status == 200 and got.headers["content-type"].startswith("text/plain; version=0.0.4")
    return values(got.content)


async def leaves(asked: Asked, peer: Peer) -> None:
    """Says in the middle of a stream that it leaves."""
    await peer.head(pairs=EVENTS)
    for unit in [*units(5)[:3], mark(end="DRAINING")]:
        await peer.chunk(unit)
    await peer.end()


async def hangs(asked: Asked, peer: Peer) -> None:
    """Sends nothing more in the middle of a stream."""
    await peer.head(pairs=EVENTS)
    for unit in units(5)[:3]:
        await peer.chunk(unit)
    await pause_loop(3600)


@pytest.mark.parametrize(
    ("first", "cause"), [(streaming(5, cut_at=lambda _: 300), "ended"), (leaves, "left"), (hangs, "silent")]
)
def test_frt_7_a_stream_that_went_on_is_counted_by_why(
    monkeypatch: pytest.MonkeyPatch, first: Answer, cause: str
) -> None:
    monkeypatch.setattr(upstream, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(upstream, "PROBE_EVERY", 0.05)
    n_asked = 0

    async def answer(asked: Asked, peer: Peer) -> None:
        nonlocal n_asked
        n_asked += 1
        if n_asked == 1 and first is hangs:
            engine.live = 503
        await (first if n_asked == 1 else streaming(5))(asked, peer)

    engine = ScriptedEngine(answer)

    async def run() -> tuple[bytes, Mapping[str, float]]:
        async with running(engine), front_served([engine.address], has_own_metrics=True) as served:
            return (await served.stream()).content, await scrape(served)

    content, found = asyncio.run(run())
    assert content == golden(5)
    of_cause = {each: found[f"imp_front_resumed_total.{each}"] for each in ("ended", "left", "silent")}
    assert of_cause == {"ended": 0, "left": 0, "silent": 0} | {cause: 1}
    assert found["imp_front_lost_total"] == 0


def test_frt_7_lost_and_unresumable_streams_servers_and_calls_are_counted() -> None:
    async def breaks_off(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        await peer.chunk(b"data: 1\n\n")
        await pause_loop(0.05)
        peer.cut()

    async def run() -> tuple[Mapping[str, float], Mapping[str, float]]:
        engine, away = ScriptedEngine(breaks_off), ScriptedEngine(breaks_off, health=503)
        async with running(engine, away):
            addresses = [engine.address, away.address]
            async with front_served(addresses, has_own_metrics=True, memory=1024) as served:
                await served.stream(user="x" * 2000)
                before = await scrape(served)
                engine.health = 503
                while (await scrape(served))["imp_front_upstreams.ready"]:
                    await pause_loop(0.01)
                waiting = asyncio.create_task(served.get("/x"))
                await pause_loop(0.1)
                after = await scrape(served)
                waiting.cancel()
                return before, after

    before, after = asyncio.run(run())
    assert (before["imp_front_lost_total"], before["imp_front_unresumable_total"]) == (1, 1)
    assert (before["imp_front_upstreams.ready"], before["imp_front_upstreams.away"]) == (1, 1)
    assert (before["imp_front_calls.waiting"], after["imp_front_calls.waiting"]) == (0, 1)
    assert (after["imp_front_upstreams.ready"], after["imp_front_calls.running"]) == (0, 0)


@pytest.mark.parametrize(
    ("is_child", "status", "is_added"), [(True, 200, True), (True, 401, False), (False, 200, False)]
)
def test_frt_7_behind_the_series_of_its_own_process_a_front_writes_its_own(
    is_child: bool, status: int, is_added: bool
) -> None:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.reply(ENGINES, status, "text/plain; version=0.0.4")

    async def run() -> tuple[int, bytes]:
        engine = ScriptedEngine(answer)
        async with running(engine), front_served([] if is_child else [engine.address]) as served:
            if is_child:
                served.front.upstreams.add_child().started(engine.address)
            got = await served.get("/metrics")
            return got.status, got.content

    found, page = asyncio.run(run())
    assert found == status and page.startswith(ENGINES)
    assert (page != ENGINES, "imp_front_lost_total" in values(page)) == (is_added, is_added)
    assert values(page)["imp_x_total"] == 7


def test_frt_7_the_address_of_metrics_answers_with_them_alone(tmp_path: Path) -> None:
    given = ('listen.http=["127.0.0.1:0"]', "listen.metrics=127.0.0.1:0", 'front.to=["127.0.0.1:9"]')
    settings = read_settings(None, given, variables={}).settings

    async def run() -> list[int]:
        log = Log(LogSettings(level="error"))
        server = FrontServer(settings, log, has_metrics=True)
        upstreams = Upstreams(settings.front.to, log=log)
        front = Front(upstreams, front_options(settings), log)
        await upstreams.start()
        await server.start(front)
        found = []
        url = f"http://{server.metrics_address}"
        async with ClientSession() as session:
            for path, host in (("/metrics", "127.0.0.1"), ("/v1/models", "127.0.0.1"), ("/metrics", "evil.example")):
                async with session.get(url + path, headers={"host": host}) as response:
                    found.append(response.status)
                    page = await response.read() if response.status == 200 else b"imp_front_lost_total 0\n"
                    assert "imp_front_lost_total" in values(page)
        await server.stop()
        await upstreams.stop()
        log.close()
        return found

    assert asyncio.run(run()) == [200, 404, 421]


@pytest.mark.parametrize(
    ("given", "has_metrics", "is_own"),
    [([], True, False), (["http.public_metrics=true"], True, True), (["http.public_metrics=true"], False, False)],
)
def test_frt_7_a_front_answers_scrapers_at_its_http_if_they_need_no_token(
    given: list[str], has_metrics: bool, is_own: bool
) -> None:
    """Not one with an engine process, which answers them itself, whatever front.to says."""
    settings = read_settings(None, [*given, 'front.to=["127.0.0.1:9"]'], variables={}).settings
    assert front_options(settings, has_metrics=has_metrics).has_own_metrics is is_own


def test_frt_7_a_request_for_the_head_of_the_page_gets_no_series() -> None:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=[("content-type", "text/plain"), ("content-length", "9")], chunked=False)

    async def run() -> bytes:
        engine = ScriptedEngine(answer)
        async with running(engine), front_served([]) as served:
            served.front.upstreams.add_child().started(engine.address)
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"HEAD /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            found = await reader.read()
            writer.close()
            return found

    head, _, body = asyncio.run(run()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and body == b""


def test_frt_7_a_stream_whose_ids_have_no_room_is_counted_once() -> None:
    async def run() -> tuple[bytes, int]:
        engine = ScriptedEngine(streaming(20))
        async with running(engine), front_served([engine.address], memory=1024) as served:
            return (await served.stream()).content, served.front.n_unresumable

    assert asyncio.run(run()) == (golden(20), 1)


def cut_behind(n_units: int) -> Answer:
    """The first time, a stream that ends behind so many of its units; then its rest."""
    lengths = [0, *(sum(map(len, units(5)[:n])) for n in range(1, 8))]
    n_asked = 0

    async def answer(asked: Asked, peer: Peer) -> None:
        nonlocal n_asked
        n_asked += 1
        await streaming(5, cut_at=lambda _: lengths[n_units] + 1 if n_asked == 1 else None)(asked, peer)

    return answer


@pytest.mark.parametrize(("n_units", "n_resumed"), [(0, 0), (1, 1), (3, 1), (6, 1)])
def test_frt_7_a_stream_went_on_only_if_its_client_had_the_begin(n_units: int, n_resumed: int) -> None:
    """Behind the last token only the end is missing, which is a rest too. What had not begun is only sent again."""

    async def run() -> tuple[bytes, int]:
        engine = ScriptedEngine(cut_behind(n_units))
        async with running(engine), front_served([engine.address]) as served:
            got = await served.stream()
            assert len(engine.asked) == 2
            return got.content, served.front.resumed.total()

    assert asyncio.run(run()) == (golden(5), n_resumed)


UNMARKED = {
    "no marks": [b"data: 1\n\n", b"data: 2\n\n", DONE],
    "a comment and no marks": [b": hello\n\ndata: 1\n\n" + DONE],
    "no origin": [mark(origin=None), b"data: 1\n\n", b"data: 2\n\n", DONE],
}


@pytest.mark.parametrize("parts", UNMARKED.values(), ids=UNMARKED)
def test_frt_7_a_stream_that_no_other_server_can_go_on_with_is_counted_once(parts: list[bytes]) -> None:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.head(pairs=EVENTS)
        for part in parts:
            await peer.chunk(part)
            await pause_loop(0.01)
        await peer.end()

    async def run() -> tuple[bytes, int]:
        engine = ScriptedEngine(answer)
        async with running(engine), front_served([engine.address]) as served:
            return (await served.stream()).content, served.front.n_unresumable

    events = [part for part in parts if not part.startswith(b": imp")]
    assert asyncio.run(run()) == (b"".join(events), 1)


@pytest.mark.parametrize(("kind", "n"), [("text/event-stream", 1), ("application/json", 0)])
def test_frt_7_a_body_without_room_counts_if_its_answer_is_a_stream(kind: str, n: int) -> None:
    async def answer(asked: Asked, peer: Peer) -> None:
        await peer.reply(b"data: 1\n\n", kind=kind)

    async def run() -> int:
        engine = ScriptedEngine(answer)
        async with running(engine), front_served([engine.address], memory=1024) as served:
            await served.stream(user="x" * 2000)
            return served.front.n_unresumable

    assert asyncio.run(run()) == n
