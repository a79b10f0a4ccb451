"""Which pages may call the server: host, origin, preflight, and the headers that let a browser read the answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.calls.raw_http import chat, exchange, head
from support.servers.http_served import HttpServed, serve_http

CHAT = "POST /v1/chat/completions HTTP/1.1"


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http('http.hosts=["imp.example.com"]', 'http.origins=["https://chat.example.com"]') as it:
        yield it


HOSTS = {
    "localhost": 200,
    "localhost:8000": 200,
    "LOCALHOST": 200,
    "127.0.0.1": 200,
    "127.0.0.1:8000": 200,
    "192.0.2.7:8000": 200,
    "[::1]:8000": 200,
    "imp": 200,
    "imp.default.svc": 200,
    "imp.default.svc.cluster.local": 200,
    # A machine of the same network answers for any name of mDNS.
    "mac.local": 421,
    "evil.local:8000": 421,
    "cluster.local": 421,
    "host.docker.internal": 200,
    "imp.example.com": 200,
    "IMP.example.com:443": 200,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "localhost.": 421,
    "a.imp.example.com": 421,
    "": 421,
    "a b": 400,
    "user@localhost": 400,
    "localhost:x": 421,
    "[::1": 400,
    "[::::]": 421,
    "[dead:beef]": 421,
}


@pytest.mark.few(12)
@pytest.mark.parametrize("host", HOSTS)
def test_htp_7_only_names_of_this_server_are_answered(http: HttpServed, host: str) -> None:
    reply = exchange(http, head(host=host), 1)
    assert reply.status in ({400, 421} if HOSTS[host] >= 400 else {200}), reply
    if HOSTS[host] == 421 and reply.status == 421:
        assert reply.error["code"] == "misdirected_request"
        # The body is not read either.
        assert exchange(http, chat(max_tokens=1).replace(b"localhost", host.encode() or b"x.y")).status == 421


# Origin -> the status, and the origin that may read the answer.
ORIGINS = {
    "http://localhost": (200, None),
    "https://localhost": (200, None),
    "http://localhost:3000": (200, "http://localhost:3000"),
    "http://127.0.0.1:3000": (200, "http://127.0.0.1:3000"),
    "http://[::1]:3000": (200, "http://[::1]:3000"),
    "https://chat.example.com": (200, "https://chat.example.com"),
    "https://chat.example.com:444": (403, None),
    "http://chat.example.com": (403, None),
    "https://evil.example": (403, None),
    "http://localhost.evil.example": (403, None),
    "http://evil.example#localhost": (403, None),
    "file://localhost": (403, None),
    "null": (403, None),
    "": (403, None),
    "http://[::1": (403, None),
    "chrome-extension://localhost": (403, None),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("origin", ORIGINS)
def test_htp_7_pages_of_other_sites_are_refused_before_the_body_is_read(http: HttpServed, origin: str) -> None:
    status, allowed = ORIGINS[origin]
    before = http.served.stats().n_steps
    reply = http.client.post("/v1/chat/completions", {"messages": []}, origin=origin)
    assert reply.status == (400 if status == 200 else status)
    assert reply.headers.get("access-control-allow-origin") == allowed
    assert "access-control-allow-credentials" not in reply.headers
    if status == 403:
        assert reply.error["code"] == "origin_not_allowed" and reply.headers["connection"] == "close"
    if allowed:
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert reply.headers["vary"] == "Origin"
    assert http.served.stats().n_steps == before


def test_htp_7_a_preflight_is_answered(http: HttpServed) -> None:
    asked = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os",
    }
    reply = http.client.request("OPTIONS", "/v1/chat/completions", None, asked)
    assert (reply.status, reply.content) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert reply.headers["access-control-allow-headers"] == asked["access-control-request-headers"]
    assert "POST" in reply.headers["access-control-allow-methods"]
    refused = http.client.request("OPTIONS", "/v1/chat/completions", None, {**asked, "origin": "https://evil.example"})
    assert refused.status == 403


def test_htp_7_a_page_reads_streams_and_errors_of_an_allowed_origin(http: HttpServed) -> None:
    origin = "https://chat.example.com"
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    events = http.client.stream("/v1/chat/completions", body, origin=origin)
    assert events.headers["access-control-allow-origin"] == origin
    wrong = http.client.post("/v1/chat/completions", {**body, "n": 0}, origin=origin)
    assert wrong.headers["access-control-allow-origin"] == origin
    assert http.client.get("/nosuch", origin=origin).headers["access-control-allow-origin"] == origin


@pytest.mark.long
def test_htp_7_every_origin_may_call_where_the_settings_say_so() -> None:
    with serve_http('http.origins=["*"]') as http:
        for origin in ("https://evil.example", "null"):
            reply = http.client.get("/v1/models", origin=origin)
            assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "*")
