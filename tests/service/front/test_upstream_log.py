"""What the log of a front says of its servers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from imp_service.front.relay import upstream
from imp_service.front.relay.connections import trust_in
from imp_service.front.relay.upstreams import Upstreams
from imp_service.telemetry.log import Log
from support.run.pauses import pause_loop
from support.servers.certificates import Authority
from support.servers.scripted_engine import ScriptedEngine, running, streaming


class Lines:
    """A log that keeps the lines about servers, without their addresses."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def info(self, event: str, *, message: str) -> None:
        """Keeps one."""
        assert event == "upstream"
        self.found.append(message.partition(": ")[2])

    def warning(self, event: str, *, message: str) -> None:
        """Keeps one."""
        self.info(event, message=f": ! {message.partition(': ')[2]}")


Work = Callable[[ScriptedEngine, Upstreams, Lines], Awaitable[None]]


def lines_during(work: Work, *, is_child: bool = False) -> list[str]:
    """The lines of a front before one server, about which `work` is done."""
    lines = Lines()

    async def run() -> None:
        engine = ScriptedEngine(streaming(1))
        async with running(engine):
            upstreams = Upstreams([] if is_child else [engine.address], log=cast(Log, lines))
            await upstreams.start()
            if is_child:
                upstreams.add_child().started(engine.address)
            await work(engine, upstreams, lines)
            await upstreams.stop()

    asyncio.run(run())
    return lines.found


async def until(n_lines: int, lines: Lines) -> None:
    """Waits for so many lines."""
    while len(lines.found) < n_lines:
        await pause_loop(0.01)


async def probed(engine: ScriptedEngine, n: int) -> None:
    """Waits for so many more probes."""
    until_n = engine.n_probes + n
    while engine.n_probes < until_n:
        await pause_loop(0.01)


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the probes of a ready server as frequent as those of one that is not."""
    monkeypatch.setattr(upstream, "PROBE_EVERY", 0.05)


def test_frt_1_a_server_that_goes_away_and_comes_back_is_one_line_each_time() -> None:
    async def work(engine: ScriptedEngine, _: Upstreams, lines: Lines) -> None:
        await probed(engine, 4)
        engine.health = 503
        await probed(engine, 4)
        engine.kill()
        await until(3, lines)
        await engine.start()
        engine.health = 421  # it refuses the name by which it is called
        await until(4, lines)
        engine.health = 200
        await until(5, lines)
        await probed(engine, 4)

    assert lines_during(work) == [
        "ready",
        "! away: status 503",
        "! away: no answer",
        "! away: status 421",
        "ready",
    ]


def test_frt_1_a_failed_request_to_a_server_that_answers_is_no_line() -> None:
    async def work(engine: ScriptedEngine, upstreams: Upstreams, lines: Lines) -> None:
        await until(1, lines)
        for each in upstreams.all:
            each.failed()
        await probed(engine, 4)

    assert lines_during(work) == ["ready"]


def test_frt_1_the_supervisor_alone_tells_of_an_engine_process() -> None:
    async def work(engine: ScriptedEngine, _: Upstreams, lines: Lines) -> None:
        await probed(engine, 2)
        engine.health = 503
        await probed(engine, 2)

    assert lines_during(work, is_child=True) == []


def test_frt_6_what_tls_refuses_is_why_a_server_is_away(tmp_path: Path) -> None:
    lines = Lines()
    (tmp_path / "ca.pem").write_bytes(Authority().cert)
    certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.load_cert_chain(*Authority().issue().write(tmp_path))

    async def run() -> None:
        engine = ScriptedEngine(streaming(1), tls=certificate)
        async with running(engine):
            to, trust = f"https://{engine.address}", trust_in(str(tmp_path / "ca.pem"))
            upstreams = Upstreams([to], log=cast(Log, lines), trust=lambda: trust)
            await upstreams.start()
            await until(1, lines)
            await pause_loop(0.3)  # further probes
            await upstreams.stop()

    asyncio.run(run())
    (line,) = lines.found
    assert line.startswith("! away: ") and "SSL" in line.upper()
