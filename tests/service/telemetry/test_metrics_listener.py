"""The metrics' own listener: one page for whoever asks properly, a short answer for all else, and bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from imp_service.config import Settings
from imp_service.telemetry.metrics_listener import MAX_CONNECTIONS, RENDERS_PER_SECOND, MetricsListener
from support.telemetry_bench import TelemetryBench

GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9090\r\n\r\n"


class Scraped:
    """A listener with a page of the test, counted, on a clock of the test."""

    def __init__(self, page: bytes = b"page\n", **options: Any) -> None:
        self.n_renders = 0
        self.now = 0.0
        self.page = page
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.listener = MetricsListener(self.socket, self._render, clock=lambda: self.now, **options)

    def _render(self) -> bytes:
        self.n_renders += 1
        return self.page

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes = GET) -> bytes:
        """Everything that is answered; nothing where the connection is cut."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def scraped(**options: Any) -> AsyncIterator[Scraped]:
    found = Scraped(**options)
    await found.listener.start()
    try:
        yield found
    finally:
        await found.listener.stop()


def test_obs_7_the_page_is_valid_text_and_there_is_no_listener_by_default(bench: TelemetryBench) -> None:
    async def run() -> bytes:
        async with scraped(page=bench.telemetry.metrics.render()) as found:
            return await found.ask()

    head, body = asyncio.run(run()).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    families = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"imp_requests_started", "imp_time_to_first_token_seconds", "grpc_server_handled"} <= families
    assert Settings().listen.metrics is None


def request(line: str = "GET /metrics HTTP/1.1", *fields: str) -> bytes:
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (request("GET /metrics HTTP/1.0"), 200),
        (request("GET /metrics HTTP/1.1", "host:localhost"), 200),
        (request("GET /metrics HTTP/1.1", "Host: [::1]:9090"), 200),
        (request("GET /metrics HTTP/1.1", "Host: imp.models.svc.cluster.local:9090"), 200),
        (request("GET /metrics HTTP/1.1", "Host: imp:9090", "X-Other: y"), 200),
        (request("GET /metrics HTTP/1.1", "Host: evil.example"), 421),
        (request("GET /metrics HTTP/1.1", "Host: 127.0.0.1.evil.example:9090"), 421),
        (request("GET /metrics HTTP/1.1", "Host: "), 421),
        (request("GET /metrics HTTP/1.1", "Host: a b"), 421),
        (request("GET /metrics HTTP/1.1", "Host: imp", "Host: imp"), 400),
        (request("GET /../../etc/passwd HTTP/1.1"), 404),
        (request("GET /metrics/../../etc/passwd HTTP/1.1"), 404),
        (request("GET /metrics/ HTTP/1.1"), 404),
        (request("GET /metrics?name=x HTTP/1.1"), 404),
        (request("GET http://evil.example/metrics HTTP/1.1"), 404),
        (request("GET / HTTP/1.1"), 404),
        (request(f"GET /{'a' * 4000} HTTP/1.1"), 414),
        (request("POST /metrics HTTP/1.1"), 405),
        (request("get /metrics HTTP/1.1"), 400),
        (request("GET /metrics HTTP/2.0"), 400),
        (request("GET /met\x00rics HTTP/1.1"), 400),
        (request("PRI * HTTP/2.0"), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    ],
)
def test_w27_what_is_not_a_scrape_is_refused(content: bytes, status: int) -> None:
    async def run() -> bytes:
        async with scraped() as found:
            return await found.ask(content)

    head, body = asyncio.run(run()).split(b"\r\n\r\n", 1)
    assert int(head.split(b" ")[1]) == status
    assert (body == b"page\n") is (status == 200)
    # Nothing of what was asked comes back.
    assert b"evil" not in head + body and b"passwd" not in head + body


def test_w27_head_has_no_body() -> None:
    async def run() -> bytes:
        async with scraped() as found:
            return await found.ask(request("HEAD /metrics HTTP/1.1"))

    answer = asyncio.run(run())
    assert answer.endswith(b"\r\n\r\n") and b"Content-Length: 5\r\n" in answer


def test_w27_a_path_of_a_mebibyte_is_cut_off_early() -> None:
    async def run() -> bytes:
        async with scraped() as found:
            return await found.ask(b"GET /" + b"a" * 1024**2 + b" HTTP/1.1\r\n\r\n")

    # The rest of what was sent may reset the connection before the answer is read.
    assert asyncio.run(run())[:12] in (b"HTTP/1.1 431", b"")


@pytest.mark.parametrize("sent", [b"", b"GET /metr", GET])
def test_w27_who_neither_writes_nor_reads_is_cut_off(sent: bytes) -> None:
    """Half a head, or a page that nobody reads, is held for no longer than the timeout."""

    async def run() -> int:
        async with scraped(page=b"x" * (16 * 1024**2), timeout=0.05) as found:
            _, writer = await found.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(sent)
            while not found.listener._connections:
                await asyncio.sleep(0)
            await asyncio.wait(found.listener._connections, timeout=30)
            left = len(found.listener._connections)
            writer.close()
            return left

    assert asyncio.run(run()) == 0


def test_w27_connections_have_a_bound_and_the_next_scrape_succeeds() -> None:
    async def run() -> tuple[int, list[bytes], bytes]:
        async with scraped() as found:
            idle = [await found.connect() for _ in range(MAX_CONNECTIONS)]
            while len(found.listener._connections) < MAX_CONNECTIONS:
                await asyncio.sleep(0)
            n_held = len(found.listener._connections)
            answers = [await found.ask() for _ in range(50)]
            for _, writer in idle:
                writer.close()
            while found.listener._connections:
                await asyncio.sleep(0)
            return n_held, answers, await found.ask()

    n_held, answers, last = asyncio.run(run())
    assert (n_held, set(answers)) == (MAX_CONNECTIONS, {b""})
    assert last.endswith(b"page\n")


def test_w27_a_flood_of_scrapes_is_answered_from_one_page() -> None:
    async def run() -> tuple[int, int, int]:
        async with scraped() as found:
            for _ in range(200):
                assert (await found.ask()).endswith(b"page\n")
            flood = found.n_renders
            found.now += 0.1
            found.page = b"fresh\n"
            assert (await found.ask()).endswith(b"fresh\n")
            found.now += 60
            for _ in range(200):
                await found.ask()
            return flood, found.n_renders - flood, RENDERS_PER_SECOND

    flood, later, most = asyncio.run(run())
    assert (flood, later) == (most, 1 + most)


def test_obs_7_metrics_on_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.sock")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)

    async def run() -> bytes:
        listener = MetricsListener(listening, lambda: b"page\n", clock=lambda: 0.0)
        await listener.start()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(GET)
        answer = await reader.read()
        writer.close()
        await listener.stop()
        return answer

    assert asyncio.run(run()).endswith(b"page\n")


def test_w27_no_secret_is_on_the_page(bench: TelemetryBench) -> None:
    """Nothing of a caller."""
    canary = "canary-7f3a"
    record = bench.call(tenant=canary, request_id=canary)
    record.ended("INVALID_ARGUMENT", "FIELD_INVALID")
    assert canary not in bench.telemetry.metrics.render().decode()
