"""Invalid heads, and bodies refused by their head: the server answers and closes the connection."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator

import pytest

from imp_service.config import read_settings
from imp_service.core.reserve import CONNECTION_BYTES, one_way_bytes, reserve_bytes
from imp_service.http_api.connection_places import SPARE_PLACES
from support.calls.raw_http import RawReply, chat, chat_head, exchange, head, send_on
from support.run.patience import HANGS_AFTER
from support.servers.http_served import HttpServed, serve_http

MODELS = "GET /v1/models HTTP/1.1"
CHAT = "POST /v1/chat/completions HTTP/1.1"
JSON = "Content-Type: application/json"
BODY = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}).encode()


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http("limits.max_message_bytes=1MiB") as it:
        yield it


# The bytes sent, and the allowed statuses.
HEADS: dict[str, tuple[bytes, set[int]]] = {
    "no host": (head(host=None), {400}),
    "two hosts": (head(MODELS, "Host: localhost"), {400}),
    "length and chunked": (
        head(CHAT, JSON, f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked") + BODY,
        {400},
    ),
    "two lengths": (head(CHAT, JSON, "Content-Length: 2", f"Content-Length: {len(BODY)}") + BODY, {400}),
    "signed length": (head(CHAT, JSON, f"Content-Length: +{len(BODY)}") + BODY, {400}),
    "negative length": (head(CHAT, JSON, "Content-Length: -1") + BODY, {400}),
    "length of 5000 digits": (head(CHAT, JSON, f"Content-Length: {'9' * 5000}"), {400}),
    "bare LF": (head().replace(b"\r\n", b"\n"), {400}),
    "folded line": (head(MODELS, "X-A: b", " c"), {400}),
    "blank before colon": (head(MODELS, "X-A : b"), {400}),
    "NUL in a value": (head(MODELS, "X-A: \0"), {400}),
    "NUL in the path": (head("GET /v1/\0models HTTP/1.1"), {400}),
    "xchunked": (head(CHAT, JSON, "Transfer-Encoding: xchunked") + b"0\r\n\r\n", {400}),
    "gzip, chunked": (head(CHAT, JSON, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", {400}),
    "chunked twice": (head(CHAT, JSON, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n", {400}),
    "bad chunk size": (head(CHAT, JSON, "Transfer-Encoding: chunked") + b"zz\r\n", {400}),
    "huge chunk size": (head(CHAT, JSON, "Transfer-Encoding: chunked") + b"f" * 20 + b"\r\n", {400}),
    "bad method": (head("G@T /v1/models HTTP/1.1"), {400}),
    "no version": (b"GET /v1/models\r\n\r\n", {400}),
    "other version": (head("GET /v1/models HTTP/9.9"), {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60), {400}),
    "long line": (head(f"GET /v1/models?{'x' * 9000} HTTP/1.1"), {400, 414}),
    "path of 100 KB": (head(f"GET /{'x' * 100_000} HTTP/1.1"), {400, 414}),
    "long field": (head(MODELS, f"X-A: {'x' * 20_000}"), {400, 431}),
    "5000 fields": (head(MODELS, *(f"X-{i}: a" for i in range(5000))), {400, 431}),
    "101 fields": (head(MODELS, *(f"X-{i}: a" for i in range(101))), {400, 431}),
    "much in few fields": (head(MODELS, *(f"X-{i}: {'x' * 7000}" for i in range(10))), {400, 431}),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("name", HEADS)
def test_htp_5_a_bad_head_ends_its_own_connection(http: HttpServed, name: str) -> None:
    content, statuses = HEADS[name]
    before = http.served.stats().n_steps
    reply = exchange(http, content)
    assert reply.has_closed and reply.status in statuses, reply
    assert reply.error["code"] and reply.error["message"]
    assert b"\r\nserver: imp\r\n" in reply.content and b"aiohttp" not in reply.content.lower()
    assert http.served.stats().n_steps == before


def test_htp_5_bad_heads_disturb_no_other_request(http: HttpServed) -> None:
    with http.served.canary():
        for content, _ in HEADS.values():
            exchange(http, content)


# Header fields with a JSON body, and the expected answer.
BODIES: dict[str, tuple[tuple[str, ...], bytes, int, str]] = {
    "too large": ((JSON, f"Content-Length: {2**20 + 1}"), b"", 413, "message_too_large"),
    "huge": ((JSON, f"Content-Length: {2**62}"), b"", 413, "message_too_large"),
    "too large in chunks": (
        (JSON, "Transfer-Encoding: chunked"),
        b"10000\r\n" + (b"x" * 0x10000 + b"\r\n10000\r\n") * 16 + b"x" * 100,
        413,
        "message_too_large",
    ),
    "gzip": ((JSON, "Content-Encoding: gzip", "Content-Length: 2"), b"{}", 415, "unsupported_media_type"),
    "no content type": (("Content-Length: 2",), b"{}", 415, "unsupported_media_type"),
    "text": (("Content-Type: text/plain", "Content-Length: 2"), b"{}", 415, "unsupported_media_type"),
    "a form": (
        ("Content-Type: application/x-www-form-urlencoded", "Content-Length: 2"),
        b"{}",
        415,
        "unsupported_media_type",
    ),
    "JSON of a page's text": (
        ("Content-Type: text/plain; application/json", "Content-Length: 2"),
        b"{}",
        415,
        "unsupported_media_type",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BODIES)
def test_htp_5_htp_7_a_body_is_refused_before_it_is_read(http: HttpServed, name: str) -> None:
    fields, content, status, code = BODIES[name]
    reply = exchange(http, head(CHAT, *fields) + content)
    assert (reply.status, reply.error["code"], reply.has_closed) == (status, code, True)


def test_htp_5_who_sends_a_large_body_gets_its_refusal(http: HttpServed) -> None:
    """The client reads only after it has sent everything: the connection stays open until then."""
    reply = http.client.post("/v1/chat/completions", b"x" * 6 * 1024**2)
    assert reply.refusal == (413, "message_too_large", None)


def test_htp_5_a_body_of_many_chunks_is_read(http: HttpServed) -> None:
    content = b"".join(b"%x\r\n%s\r\n" % (1, BODY[i : i + 1]) for i in range(len(BODY))) + b"0\r\n\r\n"
    assert exchange(http, head(CHAT, JSON, "Transfer-Encoding: chunked") + content, 1).status == 200


@pytest.mark.long
def test_htp_5_a_client_that_waits_to_send_is_asked_to(http: HttpServed) -> None:
    with http.socket() as connection:
        assert send_on(connection, chat_head(len(BODY), "Expect: 100-continue"), 1).statuses == [100]
        assert send_on(connection, BODY, 1).statuses == [200]
    # A request whose head is refused gets no 100.
    reply = exchange(http, chat_head(2**30, "Expect: 100-continue"))
    assert (reply.statuses, reply.has_closed) == ([413], True)


PATHS = {
    "/nosuch": 404,
    "/v1": 404,
    "/v1/": 404,
    "//v1/models": 404,
    "/v1//models": 404,
    "/v1/./models": 404,
    "/v1/../v1/models": 404,
    "/v1/%6dodels": 404,
    "/v1/%2e%2e/v1/models": 404,
    "/V1/models": 404,
    "/v1/models/": 404,
    "/v1/models?x=1": 200,
    "/models": 200,
    "/models/imp-demo": 200,
    "/v1/models/imp-demo": 200,
    # A client may encode the name of a model, which is data.
    "/v1/models/imp%2Ddemo": 200,
    "/v1/models/imp%2Fdemo": 404,
    "/v1/models/..": 404,
    "/api/tags": 404,
    "http://localhost/v1/models": 200,
    "HTTP://localhost:8000/v1/models?x=1": 200,
    "http://localhost/v1//models": 404,
    "http://localhost": 200,
    "http://evil.example/v1/models": 421,
    "http://user@localhost/v1/models": 421,
    "http:///v1/models": 421,
    "ftp://localhost/v1/models": 404,
    "*": 404,
}


def test_htp_5_the_host_of_an_absolute_target_replaces_the_header(http: HttpServed) -> None:
    for target, host, status in (
        ("http://localhost/v1/models", "evil.example", 200),
        ("http://evil.example/v1/models", "localhost", 421),
        ("http://localhost/v1/models", None, 400),
    ):
        assert exchange(http, head(f"GET {target} HTTP/1.1", host=host), 1).status == status, (target, host)


@pytest.mark.few(9)
@pytest.mark.parametrize("path", PATHS)
def test_htp_5_nothing_in_a_path_is_normalized(http: HttpServed, path: str) -> None:
    reply = exchange(http, head(f"GET {path} HTTP/1.1"), 1)
    assert reply.status == PATHS[path] or (reply.status == 400 and "/" not in path[:1])


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/nosuch", "path"),
        ("/v1/chat/completion", "path"),
        ("/api/tags", "; imp does not have Ollama's API: set the client to an OpenAI base URL"),
        ("/completion", "; imp does not have llama-server's own API: set the client to an OpenAI base URL"),
        ("/v1/v1/chat/completions", ", did you mean /v1/chat/completions?"),
        ("/v1/chat/completions/chat/completions", ", did you mean /v1/chat/completions?"),
        ("/openai/responses", ", did you mean /responses?"),
        ("/v1/v1/messages/count_tokens", ", did you mean /v1/messages/count_tokens?"),
        ("/v1/messages/batches", ", did you mean /v1/messages?"),
        ("/v1/models/", ", did you mean /v1/models?"),
    ],
)
def test_htp_5_a_wrong_base_url_is_answered_with_the_right_path(http: HttpServed, path: str, hint: str) -> None:
    reply = exchange(http, head(f"GET {path} HTTP/1.1"), 1)
    assert reply.status == 404 and reply.error["message"].endswith(hint), reply.error


METHODS = {
    ("GET", "/v1/chat/completions"): "POST",
    ("PUT", "/v1/completions"): "POST",
    ("DELETE", "/v1/models/imp-demo"): "GET, HEAD",
    ("POST", "/health"): "GET, HEAD",
    ("OPTIONS", "/v1/models"): "GET, HEAD",
    ("TRACE", "/v1/models"): "GET, HEAD",
    ("CONNECT", "/v1/models"): "GET, HEAD",
}


@pytest.mark.parametrize(("method", "path"), METHODS)
def test_htp_5_a_wrong_method_is_reported_with_the_right_ones(http: HttpServed, method: str, path: str) -> None:
    reply = http.client.request(method, path, None, {})
    assert (reply.status, reply.headers["allow"]) == (405, METHODS[method, path])
    assert reply.error["code"] == "method_not_allowed"


def test_htp_5_a_refused_head_gets_an_id_too(http: HttpServed) -> None:
    json_kind, evil = {"content-type": "application/json"}, {"host": "evil.example"}
    asked: list[tuple[int, str, str, dict[str, str]]] = [
        (404, "GET", "/nosuch", {}),
        (405, "GET", "/v1/chat/completions", {}),
        (415, "POST", "/v1/chat/completions", {"content-type": "text/plain"}),
        (403, "POST", "/v1/chat/completions", {**json_kind, "origin": "https://evil.example"}),
        (421, "POST", "/v1/chat/completions", {**json_kind, **evil}),
    ]
    for status, method, path, headers in asked:
        chosen = http.client.request(method, path, b"{}", headers | {"x-request-id": "mine"})
        made = [http.client.request(method, path, b"{}", headers).headers["x-request-id"] for _ in range(2)]
        assert (chosen.status, chosen.headers["x-request-id"]) == (status, "mine")
        assert len(set(made)) == 2 and all(len(each) == 16 for each in made)
        bad = http.client.request(method, path, b"{}", headers | {"x-request-id": "a b"}).headers["x-request-id"]
        assert len(bad) == 16


def test_htp_5_head_has_the_headers_of_get_and_no_body(http: HttpServed) -> None:
    for path in ("/v1/models", "/health", "/metrics"):
        got, asked = http.client.get(path), http.client.request("HEAD", path, None, {})
        assert (asked.status, asked.content) == (got.status, b"")
        assert asked.headers["content-type"] == got.headers["content-type"]
    # The next request on the connection is answered.
    with http.socket() as connection:
        assert send_on(connection, head("HEAD /v1/models HTTP/1.1"), 1).status == 200
        assert send_on(connection, head(), 1).status == 200


def test_htp_5_pipelined_requests_are_answered_in_order(http: HttpServed) -> None:
    n = 200
    paths = [f"/v1/models/x{i}" if i % 2 else "/version" for i in range(n)]
    content = b"".join(head(f"GET {path} HTTP/1.1") for path in paths)
    reply = exchange(http, content, n)
    assert reply.statuses == [404 if i % 2 else 200 for i in range(n)]
    assert [reply.content.find(f"x{i} is not".encode()) > 0 for i in range(1, n, 2)] == [True] * (n // 2)


def test_htp_5_http_1_0_gets_a_stream_that_ends_with_its_connection(http: HttpServed) -> None:
    content = chat(stream=True, max_tokens=3).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    reply = exchange(http, content)
    assert reply.has_closed and reply.status == 200
    assert b"chunked" not in reply.content.lower() and reply.content.endswith(b"data: [DONE]\n\n")


def resets(http: HttpServed, n: int) -> None:
    for _ in range(n):
        with http.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(chat_head(1000))


@pytest.mark.long
def test_htp_5_connections_that_reset_leave_nothing(http: HttpServed) -> None:
    with http.served.canary():
        resets(http, 300)
    http.wait_for_rest()
    listener = http.http._listeners[0]
    http.served.wait_until(lambda: len(listener._web.connections) == 0, "no connection is left")


def test_htp_6_a_connection_without_a_whole_head_is_closed() -> None:
    with serve_http("http.head_timeout=10s", "http.idle_timeout=75s") as http, http.served.frozen():
        silent, dripping, half, idle = (http.socket() for _ in range(4))
        dripping.sendall(b"GET /v1/models HTTP/1.1\r\n")
        half.sendall(chat_head(1000) + b"{")
        assert send_on(idle, head(), 1).status == 200
        n_open = http.http._listeners[0]._web
        http.served.wait_until(lambda: len(n_open.connections) == 4, "all are connected")
        http.served.wait_until(lambda: http.served.state.calls.n_requests == 1, "a body is waited for")
        http.served.jump(6)
        dripping.sendall(b"X-A: b\r\n")
        assert send_on(idle, head(), 1).status == 200
        http.served.jump(6)
        for each in (silent, dripping):
            assert each.recv(1) == b""
        answered = half.recv(65536)
        assert b" 408 " in answered and b"request_timeout" in answered
        assert send_on(idle, head(), 1).status == 200
        http.served.jump(76)
        assert idle.recv(1) == b""
        for each in (silent, dripping, half, idle):
            each.close()


def test_htp_6_a_dripping_head_on_a_used_connection_is_closed() -> None:
    timeouts = ("http.head_timeout=10s", "http.idle_timeout=75s")
    with serve_http(*timeouts) as http, http.served.frozen(), http.socket() as connection:
        assert send_on(connection, head(), 1).status == 200
        connection.sendall(b"GET /v1")
        listener = http.http._listeners[0]._web
        http.served.wait_until(
            lambda: all(each._head_timer is not None for each in listener.connections), "the head is waited for"
        )
        http.served.jump(11)
        assert connection.recv(1) == b""


def test_htp_6_beyond_the_limit_of_connections_only_health_is_answered() -> None:
    with serve_http("connection.max_connections=8") as http:
        kept = [http.socket() for _ in range(8)]
        for each in kept:
            assert send_on(each, head(), 1).status == 200
        # More than the spare connections: each gives way to the next.
        silent = [http.socket() for _ in range(3 * SPARE_PLACES)]
        for _ in range(20):
            health = exchange(http, head("GET /health HTTP/1.1"))
            assert (health.status, health.has_closed) == (200, True)
            assert exchange(http, head("GET /health/live HTTP/1.1")).status == 200
            other = exchange(http, head())
            assert (other.status, other.error["code"], other.has_closed) == (503, "too_many_connections", True)
            assert exchange(http, chat()).status == 503
        listener = http.http._listeners[0]
        assert len(listener._web.connections) <= 8 + SPARE_PLACES
        assert send_on(kept[0], head(), 1).status == 200
        kept.pop().close()
        give_up = time.monotonic() + HANGS_AFTER
        while exchange(http, head(), 1).statuses != [200]:
            assert time.monotonic() < give_up, "no place became free"
        for each in (*kept, *silent):
            each.close()


def test_htp_6_a_whole_body_has_a_limit_of_time() -> None:
    """A byte comes within each head_timeout."""
    times = ("http.head_timeout=10s", "http.body_timeout=60s")
    with serve_http(*times) as http, http.served.frozen(), http.socket() as connection:
        connection.sendall(chat_head(1000))
        http.served.wait_until(lambda: http.served.state.calls.n_requests == 1, "the body is waited for")
        (found,) = http.http._listeners[0]._web.connections
        for n in range(1, 12):
            n_read = found._current_request.content.total_bytes
            connection.sendall(b" ")
            http.served.wait_until(lambda n=n_read: found._current_request.content.total_bytes > n, "it has arrived")
            http.served.jump(5)
            assert http.served.state.calls.n_requests == 1, n
        http.served.jump(6)
        answered = connection.recv(65536)
        assert b" 408 " in answered and b"request_timeout" in answered


def test_htp_6_slow_bodies_give_way_when_all_connections_are_taken() -> None:
    times = ("http.head_timeout=10s", "http.body_timeout=1h", "connection.max_connections=8")
    with serve_http(*times) as http, http.served.frozen():
        slow = [http.socket() for _ in range(8)]
        for each in slow:
            each.sendall(chat_head(1000))
        web = http.http._listeners[0]._web
        http.served.wait_until(lambda: all(each.body_since is not None for each in web.connections), "all are slow")
        http.served.wait_until(lambda: len(web.connections) == 8, "all are connected")
        assert exchange(http, head()).status == 503
        for seconds in (6, 6):
            for each in slow:
                each.sendall(b" ")
            http.served.wait_until(
                lambda: all(each._current_request.content.total_bytes for each in web.connections), "they go on"
            )
            http.served.jump(seconds)
        with http.socket() as honest:
            assert send_on(honest, head(), 1).status == 200
            assert send_on(honest, head(), 1).status == 200
            assert len(web.connections) <= 8
        for each in slow:
            each.close()


@pytest.mark.few(2)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_htp_15_incomplete_bodies_take_no_more_than_the_plan_has(is_chunked: bool) -> None:
    with serve_http("limits.max_message_bytes=256KiB", "http.head_timeout=10m", "http.body_timeout=10m") as http:
        memory, most = http.served.state.receiving, one_way_bytes(http.served.state.settings.limits)
        part = b'{"prompt":"' + b"a" * 200 * 1024
        length = "Transfer-Encoding: chunked" if is_chunked else "Content-Length: 262144"
        begun = b"%x\r\n" % 262144 if is_chunked else b""
        kept, refused = [], []
        for _ in range(2 * most // len(part)):
            connection = http.socket()
            connection.sendall(head("POST /v1/completions HTTP/1.1", JSON, length) + begun + part)
            kept.append(connection)
        http.served.wait_until(lambda: memory.n_bytes + 256 * 1024 > most, "no further body has room")
        assert memory.n_bytes <= most
        refused = [each for each in kept if select.select([each], [], [], 0.2)[0]]
        assert refused
        answer = RawReply(refused[0].recv(65536), False)
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        assert b"\r\nretry-after: 1\r\n" in answer.content and b"connection: close" in answer.content.lower()
        # A small body needs no room.
        assert http.complete(max_tokens=1).status == 200
        for each in kept:
            each.close()
        http.wait_for_rest()
        assert memory.n_bytes == 0
        assert http.complete("a " * 50_000, max_tokens=1).refusal[1] == "context_length_exceeded"


def test_htp_15_a_chunked_body_just_below_the_limit_needs_no_room_beyond_it() -> None:
    """It is counted ahead of what has arrived, but a text may not grow into the room of images, which is none here."""
    with serve_http("limits.max_message_bytes=256KiB") as http, http.socket() as connection:
        content = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode() + b" " * 250 * 1024
        fields = (JSON, "Transfer-Encoding: chunked")
        connection.sendall(head("POST /v1/completions HTTP/1.1", *fields) + b"%x\r\n" % len(content) + content)
        assert not select.select([connection], [], [], 0.2)[0], connection.recv(65536)
        assert send_on(connection, b"\r\n0\r\n\r\n", 1).status == 200


def test_htp_15_a_response_has_a_limit_of_time_for_its_reader() -> None:
    """It reads something within each head_timeout."""
    settings = ("http.head_timeout=10s", "http.body_timeout=25s", "limits.max_message_bytes=16MiB")
    with serve_http(*settings) as http, http.served.frozen():
        tokenizer = http.served.state.model.tokenizer
        plain = sorted(set(range(2047)) - tokenizer.special_ids)
        longest = max(plain, key=lambda token: len(tokenizer.token_bytes(token)))
        ids = json.dumps({"tokens": [longest] * 800_000}).encode()
        form = (JSON, f"Content-Length: {len(ids)}")
        with http.socket(receive_buffer=4096) as connection:
            connection.sendall(head("POST /detokenize HTTP/1.1", *form) + ids)
            sending = http.served.state.sending
            http.served.wait_until(lambda: sending.n_bytes > 0, "the answer is sent")
            (found,) = http.http._listeners[0]._web.connections
            http.served.wait_until(lambda: found._paused, "its buffers are full")
            for _ in range(2):
                n_unsent = found.transport.get_write_buffer_size()
                while found.transport.get_write_buffer_size() == n_unsent:
                    connection.recv(65536)
                http.served.jump(9)
                assert sending.n_bytes > 0
            http.served.jump(9)
            http.served.wait_until(lambda: sending.n_bytes == 0, "it was cut off")


def test_htp_15_the_plan_counts_connections() -> None:
    def planned(*settings: str) -> int:
        return reserve_bytes(read_settings(None, settings).settings)

    few, many = planned("connection.max_connections=8"), planned("connection.max_connections=1008")
    assert many - few == 2 * 1000 * CONNECTION_BYTES  # gRPC and HTTP


@pytest.mark.long
def test_htp_6_a_response_that_is_not_read_is_dropped() -> None:
    """No request runs any more: only the connection has to end."""
    with serve_http("http.head_timeout=10s", "limits.max_message_bytes=64MiB") as http:
        connection = http.socket(receive_buffer=4096)
        connection.sendall(head("GET /metrics HTTP/1.1") * 500)
        listener = http.http._listeners[0]._web
        http.served.wait_until(lambda: any(each._paused for each in listener.connections), "its buffers are full")
        http.served.jump(11)
        http.served.jump(11)
        http.served.wait_until(lambda: len(listener.connections) == 0, "it was cut off")
        connection.close()
