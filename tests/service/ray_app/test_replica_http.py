"""OpenAI's API of a replica without Ray: each answer equals that of imp's own HTTP listener."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from imp_service.ray_app.replica import Replica
from support.calls.http_calls import Reply
from support.run.patience import HANGS_AFTER
from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.servers.loop_thread import loop_thread
from support.servers.ray_stand_in import replicas_in_this_process

PREFIX = "/imp"
HEAD = ((b"host", b"localhost"), (b"content-type", b"application/json"), (b"x-request-id", b"of-the-proxy"))


class AsgiCall:
    """One request and its response. The `pieces` of the body arrive one by one; at None the client disconnects."""

    def __init__(
        self, method: str, path: str, pieces: tuple[bytes | None, ...], headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        named = {name for name, _ in headers}
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": PREFIX + path,
            "raw_path": (PREFIX + path).encode(),
            "root_path": PREFIX,
            "headers": [*(pair for pair in HEAD if pair[0] not in named), *headers],
            "client": ("127.0.0.1", 4711),
        }
        self._pieces = list(pieces)
        self.sent: list[dict[str, Any]] = []
        self.has_event = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self._pieces:
            await asyncio.get_running_loop().create_future()  # as long as the client stays
        piece = self._pieces.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if len(self.sent) > 1:
            self.has_event.set()

    @property
    def reply(self) -> Reply:
        """The response that the client gets; checks that the messages have the order that ASGI requires."""
        start, *bodies = self.sent
        assert start["type"] == "http.response.start"
        assert [body["type"] for body in bodies] == ["http.response.body"] * len(bodies)
        assert [body["more_body"] for body in bodies] == [True] * (len(bodies) - 1) + [False]
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(headers) == len(start["headers"])
        return Reply(start["status"], headers, b"".join(body["body"] for body in bodies))


class AsgiReplica:
    """A replica that is called over ASGI."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def ask(self, method: str, path: str, body: Any = None, *headers: tuple[bytes, bytes]) -> Reply:
        """Returns the response. Sends the body in two pieces."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        call = AsgiCall(method, path, (content[:5], content[5:]), headers)
        loop_thread().run(self.replica.http.answer(call.scope, call.receive, call.send))
        return call.reply

    def post(self, path: str, body: Any) -> Reply:
        """Returns the response to a POST, as HttpClient.post does."""
        return self.ask("POST", path, body)


@contextmanager
def serve_over_asgi(*settings: str) -> Iterator[AsgiReplica]:
    """Yields one replica with these settings."""
    with replicas_in_this_process(1, settings) as (replica,):
        yield AsgiReplica(replica)


SETTINGS = ("device.threads=1", "kv.bytes=8MiB", "text.threads=1")
SAID = [{"role": "user", "content": "Hello"}]
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"model": DEMO_MODEL, "messages": SAID, "max_tokens": 8, "temperature": 0, "logprobs": True}),
    "completion": (COMPLETIONS, {"prompt": "the cat", "max_tokens": 8, "seed": 3, "n": 2, "stop": "e"}),
    "response": (RESPONSES, {"input": "Hello", "max_output_tokens": 8, "temperature": 0}),
    "tokens": ("/tokenize", {"prompt": "Once upon"}),
    "bad field": (CHAT, {"messages": SAID, "temperature": 500}),
    "unknown field": (CHAT, {"messages": SAID, "nonsense": 1}),
    "other model": (CHAT, {"model": "other", "messages": SAID}),
    "no JSON": (CHAT, b"{"),  # type: ignore[dict-item]
    "no embeddings": ("/v1/embeddings", {"input": "a", "model": DEMO_MODEL}),
}
# These differ between requests or processes.
OWN = {"id", "created", "created_at", "completed_at", "system_fingerprint"}


@pytest.fixture(scope="module")
def replica() -> Iterator[AsgiReplica]:
    with serve_over_asgi(*SETTINGS) as it:
        yield it


@pytest.fixture(scope="module")
def direct() -> Iterator[HttpServed]:
    with serve_http(*SETTINGS) as it:
        yield it


def common(value: Any) -> Any:
    """Returns an answer without what differs between two requests."""
    if isinstance(value, dict):
        return {name: common(each) for name, each in value.items() if name not in OWN}
    return [common(each) for each in value] if isinstance(value, list) else value


def events(content: bytes) -> list[Any]:
    """Returns the objects of a stream."""
    data = [line.removeprefix(b"data: ") for line in content.splitlines() if line.startswith(b"data: ")]
    return [common(json.loads(each)) for each in data if each != b"[DONE]"]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CALLS)
def test_gwy_7_an_answer_equals_that_of_the_http_server(replica: AsgiReplica, direct: HttpServed, name: str) -> None:
    path, body = CALLS[name]
    expected, found = direct.client.post(path, body), replica.post(path, body)
    assert found.status == expected.status
    found_json, expected_json = found.json, expected.json
    assert common(found_json) == common(expected_json)
    kept = ("content-type", "server", "x-content-type-options", "x-should-retry", "imp-ignored")
    assert [found.headers.get(each) for each in kept] == [expected.headers.get(each) for each in kept]
    assert int(found.headers["content-length"]) == len(found.content)


@pytest.mark.parametrize("name", ["chat", "completion", "response"])
def test_gwy_7_a_stream_equals_that_of_the_http_server(replica: AsgiReplica, direct: HttpServed, name: str) -> None:
    path, body = CALLS[name]
    asked = {**body, "stream": True, **({} if name == "response" else {"stream_options": {"include_usage": True}})}
    found = replica.post(path, asked)
    assert found.headers["content-type"] == "text/event-stream"
    assert "content-length" not in found.headers
    objects = events(found.content)
    assert joined(objects) == joined(direct.client.stream(path, asked).objects) != {}
    assert len(objects) > 2


def joined(found: list[Any]) -> dict[str, str]:
    """Returns the text of each choice. Its division into events depends on timing."""
    texts: dict[str, str] = {}
    for each in found:
        for choice in each.get("choices", ()):
            text = choice.get("text") or choice.get("delta", {}).get("content") or ""
            texts[str(choice["index"])] = texts.get(str(choice["index"]), "") + text
        if each.get("type") == "response.output_text.delta":
            texts["response"] = texts.get("response", "") + each["delta"]
    return texts


def test_gwy_7_the_request_id_is_that_of_the_proxy(replica: AsgiReplica) -> None:
    reply = replica.post(*CALLS["chat"])
    # Ray adds the header to the response itself.
    assert "x-request-id" not in reply.headers
    assert "of-the-proxy" in reply.json["id"]
    assert reply.headers["imp-instance-id"]


@pytest.mark.parametrize("path", ["/", "/metrics", "/health", "/load", "/nowhere"])
def test_gwy_7_what_is_of_one_process_is_not_served(replica: AsgiReplica, path: str) -> None:
    """Ray chooses a replica for each request. Its own metrics and health checks cover all replicas."""
    reply = replica.ask("GET", path)
    assert (reply.status, reply.error["code"]) == (404, "not_found")


def test_gwy_7_methods_and_heads_are_judged(replica: AsgiReplica) -> None:
    assert replica.ask("GET", "/v1/models").json["data"][0]["id"] == DEMO_MODEL
    head = replica.ask("HEAD", "/v1/models")
    assert (head.status, head.content) == (200, b"")
    assert replica.ask("GET", CHAT).status == 405
    assert replica.ask("POST", CHAT, {}, (b"content-type", b"text/plain")).status == 415
    assert replica.ask("GET", "/v1/models", None, (b"host", b"evil.example.com")).status == 421
    assert replica.ask("GET", "/v1/models", None, (b"origin", b"http://localhost:3000")).status == 403


@pytest.mark.long
def test_gwy_7_a_large_body_is_refused() -> None:
    with serve_over_asgi(*SETTINGS, "limits.max_message_bytes=64KiB") as small:
        reply = small.post(CHAT, {"messages": [{"role": "user", "content": "a" * 70_000}]})
        assert (reply.status, reply.error["code"]) == (413, "message_too_large")


@pytest.mark.parametrize("stream", [False, True])
def test_gwy_7_a_client_that_leaves_frees_its_sequence(replica: AsgiReplica, stream: bool) -> None:
    """Ray cancels the task of the request."""
    body = {"prompt": "the cat", "max_tokens": 480, "ignore_eos": True, "stream": stream, "n": 8}
    state = replica.replica._state

    async def leave() -> None:
        call = AsgiCall("POST", COMPLETIONS, (json.dumps(body).encode(),))
        task = asyncio.ensure_future(replica.replica.http.answer(call.scope, call.receive, call.send))
        while not any(each.has_started for each in state.requests):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(state.requests) == 0
        assert not call.sent or call.sent[-1].get("more_body", True)
        async with asyncio.timeout(HANGS_AFTER):
            while state.model.client.engine.stats().blocks_live:
                await asyncio.sleep(0)

    loop_thread().run(leave())


def test_gwy_7_a_client_that_leaves_before_its_body_ends_gets_no_answer(replica: AsgiReplica) -> None:
    async def leave() -> None:
        call = AsgiCall("POST", COMPLETIONS, (b'{"prompt":', None))
        with pytest.raises(asyncio.CancelledError):
            await replica.replica.http.answer(call.scope, call.receive, call.send)
        assert call.sent == []

    loop_thread().run(leave())


@pytest.mark.long
def test_gwy_7_a_body_that_never_comes_ends_the_request() -> None:
    with serve_over_asgi(*SETTINGS, "http.head_timeout=10ms") as hasty:

        async def wait() -> AsgiCall:
            call = AsgiCall("POST", COMPLETIONS, ())
            await hasty.replica.http.answer(call.scope, call.receive, call.send)
            return call

        assert loop_thread().run(wait()).reply.status == 408
