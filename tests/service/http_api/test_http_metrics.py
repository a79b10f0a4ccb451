"""The metrics listener: one page for proper requests, a short answer for all others, and limits."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from imp_service.config.address import Address
from imp_service.http_api.server import MAX_SCRAPERS
from support.run.patience import HANGS_AFTER
from support.servers.certificates import Authority
from support.servers.scraped import series_of
from support.servers.served import Served, serve

GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def scraped() -> Iterator[Served]:
    with serve("listen.metrics=127.0.0.1:0") as served:
        yield served


def connect(served: Served) -> socket.socket:
    address = Address(served.http.metrics_address or "")
    if address.socket_path is None:
        made = socket.create_connection((address.host, address.port))
    else:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(address.socket_path))
    made.settimeout(HANGS_AFTER)
    return made


def rest(connection: socket.socket) -> bytes:
    """Returns all bytes until the server closes the connection, or b"" if it resets it."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def ask(served: Served, request: bytes = GET) -> bytes:
    with closing(connect(served)) as connection:
        connection.sendall(request)
        return rest(connection)


def request(line: str = "GET /metrics HTTP/1.1", *fields: str) -> bytes:
    """Returns a request with a Host of the listener, unless the fields have one."""
    named = [] if any(field.lower().startswith("host:") for field in fields) else ["Host: localhost"]
    return "\r\n".join([line, *named, *fields, "Connection: close", "", ""]).encode("latin-1")


def test_obs_7_the_page_is_that_of_the_metrics(scraped: Served) -> None:
    head, body = ask(scraped).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/plain; version=0.0.4; charset=utf-8" in head.lower()
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert "imp_requests_active" in series_of(body.decode())


@pytest.mark.few(12)
@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (request("GET /metrics HTTP/1.1", "host:localhost"), 200),
        (request("GET /metrics HTTP/1.1", "Host: [::1]:9090"), 200),
        (request("GET /metrics HTTP/1.1", "Host: imp.models.svc.cluster.local:9090"), 200),
        (request("GET /metrics HTTP/1.1", "Host: imp:9090", "X-Other: y"), 200),
        (request("GET /metrics?name=x HTTP/1.1"), 200),
        (request("GET /metrics HTTP/1.1", "Host: evil.example"), 421),
        (request("GET /metrics HTTP/1.1", "Host: 127.0.0.1.evil.example:9090"), 421),
        (request("GET /metrics HTTP/1.1", "Host: [::::]"), 421),
        (request("GET /metrics HTTP/1.1", "Host: "), 421),
        (request("GET /metrics HTTP/1.1", "Host: a b"), 421),
        (request("GET /metrics HTTP/1.1", "Origin: https://evil.example"), 403),
        (request("GET /metrics HTTP/1.1", "Host: imp", "Host: imp"), 400),
        (request("GET /../../etc/passwd HTTP/1.1"), 404),
        (request("GET /metrics/../../etc/passwd HTTP/1.1"), 404),
        (request("GET /metrics/ HTTP/1.1"), 404),
        (request("GET / HTTP/1.1"), 404),
        (request("GET /v1/models HTTP/1.1"), 404),
        (request("POST /v1/completions HTTP/1.1"), 404),
        (request(f"GET /{'a' * 4000} HTTP/1.1"), 404),
        (request(f"GET /{'a' * 9000} HTTP/1.1"), 400),
        (request("POST /metrics HTTP/1.1"), 405),
        (request("GET /met\x00rics HTTP/1.1"), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    ],
)
def test_w27_what_is_not_a_scrape_is_refused(scraped: Served, content: bytes, status: int) -> None:
    head, body = ask(scraped, content).split(b"\r\n\r\n", 1)
    assert int(head.split(b" ")[1]) == status
    assert (b"imp_requests_active" in body) is (status == 200)
    assert b"passwd" not in head + body and b"root:" not in body


def test_w27_http_2_is_cut_off(scraped: Served) -> None:
    assert ask(scraped, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")[9:12] in (b"400", b"")


def test_w27_head_has_no_body(scraped: Served) -> None:
    answer = ask(scraped, request("HEAD /metrics HTTP/1.1"))
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n")


def test_w27_a_path_of_a_mebibyte_is_cut_off_early(scraped: Served) -> None:
    # The unread rest may reset the connection before the answer is read.
    with closing(connect(scraped)) as connection:
        try:
            connection.sendall(b"GET /" + b"a" * 1024**2 + b" HTTP/1.1\r\n\r\n")
        except ConnectionError:
            return
        assert rest(connection)[9:12] in (b"400", b"414", b"")


@pytest.mark.long
@pytest.mark.parametrize("sent", [b"", b"GET /metr"])
def test_w27_who_sends_no_whole_head_is_cut_off(sent: bytes) -> None:
    with serve("listen.metrics=127.0.0.1:0", "http.head_timeout=50ms") as served, closing(connect(served)) as held:
        held.sendall(sent)
        assert rest(held) == b""


def test_w27_connections_have_a_bound_and_the_next_scrape_succeeds(scraped: Served) -> None:
    with held_connections(scraped, MAX_SCRAPERS):
        assert {ask(scraped) for _ in range(20)} == {b""}
    give_up = time.monotonic() + HANGS_AFTER
    while not ask(scraped).startswith(b"HTTP/1.1 200 "):
        assert time.monotonic() < give_up


@contextmanager
def held_connections(served: Served, n: int) -> Iterator[None]:
    """Holds connections that have had an answer, so that the server counts them."""
    held = []
    try:
        for _ in range(n):
            held.append(connect(served))
            held[-1].sendall(GET.replace(b"Connection: close\r\n", b""))
            assert held[-1].recv(12) == b"HTTP/1.1 200"
        yield
    finally:
        for connection in held:
            connection.close()


def test_obs_7_metrics_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with serve(f"listen.metrics=unix://{path}") as served:
        assert ask(served).startswith(b"HTTP/1.1 200 ")
    assert not path.exists()


@pytest.mark.long
def test_obs_7_neither_tls_nor_tokens_nor_a_drain_keep_a_scraper_away(tmp_path: Path) -> None:
    """Prometheus needs only network access, as for other pods."""
    cert, key = Authority().issue().write(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{sha256(b'word').hexdigest()} data *\n")
    tokens.chmod(0o600)
    settings = (f"tls.cert={cert}", f"tls.key={key}", f"auth.token_file={tokens}", "auth.public_health=false")
    data = tmp_path / "data.sock"
    with serve(
        "listen.metrics=127.0.0.1:0", *settings, socket=data, metadata=(("authorization", "Bearer word"),)
    ) as it:
        it.is_checked = False  # the test drains it
        assert ask(it).startswith(b"HTTP/1.1 200 ")
        it.call(it.state.drain.begin)
        assert ask(it).startswith(b"HTTP/1.1 200 ")
