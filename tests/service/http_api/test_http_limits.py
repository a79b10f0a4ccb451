"""A path over HTTP has every limit that its method of imp.v1 has, from the same settings."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from imp_service.core.reserve import one_way_bytes
from imp_service.http_api import bodies
from imp_service.http_api.openai.form import CODES
from imp_service.http_api.probes import Probes
from imp_service.http_api.server import make_routes
from imp_service.rpc.server import INFERENCE, MODEL, TOKENIZER
from imp_service.text import strict_json
from support.calls.anthropic_types import is_of_anthropic
from support.calls.failed_calls import failed
from support.calls.raw_http import head
from support.calls.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    WINDOW_UPDATE,
    call_fields,
    fields,
    frame,
    raw_connection,
)
from support.run.loop_holds import LOOP_THREAD
from support.servers.http_served import HttpServed, serve_http
from support.servers.vector_served import POOLED

MESSAGE_BYTES = 256 * 1024
PROMPT_BYTES = 64 * 1024
LIMITS = (f"limits.max_message_bytes={MESSAGE_BYTES}", f"limits.max_prompt_bytes={PROMPT_BYTES}")
TOO_LONG = "ab " * (PROMPT_BYTES // 3 + 1)
LONG = "ab " * (PROMPT_BYTES // 3)
TOO_MANY_IDS = [5] * (MESSAGE_BYTES // 4)
# Methods that no path offers: sessions, which the HTTP API does not have, and what needs no text or tokens.
WITHOUT_PATH = {
    *("Prefill", "DecodeStep", "DecodeStream", "ForkSession", "TruncateSession", "ReleaseSession"),
    *("GetTokenizer", "GetModelInfo", "GetServerInfo", "GetLoad", "WatchLoad"),
}

# Inputs of a method that no path takes: OpenAI's decisions are about conversations.
KINDS_WITHOUT_PATH = {"Decide": {"text", "ids"}}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def chat(text: str) -> dict[str, Any]:
    return {"chat": {"messages": said(text)}}


@dataclass(frozen=True)
class Twin:
    """A method, and how the same input is sent to it and to a path: for each kind of input."""

    service: Any
    method: str
    asks: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]

    def fails(self, http: HttpServed, kind: str, value: Any) -> str:
        """Returns the reason for which the method refuses the input."""
        descriptor = self.service.methods_by_name[self.method]
        path = f"/{self.service.full_name}/{self.method}"
        many = http.served.channel().unary_stream if descriptor.server_streaming else http.served.channel().unary_unary
        request = GetMessageClass(descriptor.input_type)(**self.asks[kind][1](value))
        call = many(path, lambda message: message.SerializeToString(), bytes)
        return failed(lambda: list(call(request)) if descriptor.server_streaming else call(request)).reason


def wrapped(ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {"request": ask(value)}


CHAT = {"chat": (lambda text: {"messages": said(text)}, chat)}
INPUT = {"chat": (lambda text: {"input": said(text)}, chat)}
ASKED = {"questions": [{"type": "predicate", "instructions": "x"}]}
DECIDED = {"chat": (lambda text: {"input": said(text), **ASKED}, lambda text: {**chat(text), "labels": ["yes", "no"]})}
TEXT = {"text": (lambda text: {"prompt": text}, lambda text: {"text": text})}
IDS = {"ids": (lambda ids: {"prompt": ids}, lambda ids: {"token_ids": {"ids": ids}})}


def unary(asks: Mapping[str, Any]) -> Mapping[str, Any]:
    return {kind: (body, wrapped(ask)) for kind, (body, ask) in asks.items()}


def embed_twin(field: str) -> Twin:
    return Twin(
        INFERENCE,
        "Embed",
        {
            "text": (lambda text: {field: text}, lambda text: {"texts": [text]}),
            "ids": (lambda ids: {field: ids}, lambda ids: {"token_ids": [{"ids": ids}]}),
        },
    )


RANKED = {
    "query": (
        lambda text: {"query": text, "documents": ["b"]},
        lambda text: {"query": text, "documents": ["b"]},
    ),
    "documents": (
        lambda text: {"query": "a", "documents": [text]},
        lambda text: {"query": "a", "documents": [text]},
    ),
}
# Several paths and methods together are the twins of each other, where one takes what two take.
TWINS: dict[str, tuple[Twin, ...]] = {
    "/v1/chat/completions": (Twin(INFERENCE, "Generate", CHAT), Twin(INFERENCE, "GenerateUnary", unary(CHAT))),
    "/v1/responses": (Twin(INFERENCE, "Generate", INPUT), Twin(INFERENCE, "GenerateUnary", unary(INPUT))),
    "/v1/messages": (Twin(INFERENCE, "Generate", CHAT), Twin(INFERENCE, "GenerateUnary", unary(CHAT))),
    "/v1/messages/count_tokens": (Twin(TOKENIZER, "ApplyChatTemplate", CHAT),),
    "/v1/completions": (
        Twin(INFERENCE, "Generate", TEXT | IDS),
        Twin(INFERENCE, "GenerateUnary", unary(TEXT | IDS)),
    ),
    "/v1/decisions": (Twin(INFERENCE, "Decide", DECIDED),),
    "/tokenize": (
        Twin(TOKENIZER, "Tokenize", {"text": (lambda text: {"prompt": text}, lambda text: {"texts": [text]})}),
        Twin(TOKENIZER, "ApplyChatTemplate", CHAT),
    ),
    "/detokenize": (
        Twin(
            TOKENIZER, "Detokenize", {"ids": (lambda ids: {"tokens": ids}, lambda ids: {"token_ids": [{"ids": ids}]})}
        ),
    ),
    "/v1/embeddings": (embed_twin("input"),),
    "/embed": (embed_twin("inputs"),),
    "/v1/rerank": (Twin(INFERENCE, "Rerank", RANKED),),
    "/v2/rerank": (Twin(INFERENCE, "Rerank", RANKED),),
    "/v1/score": (
        Twin(
            INFERENCE,
            "Rerank",
            {
                "query": (lambda text: {"text_1": text, "text_2": "b"}, RANKED["query"][1]),
                "documents": (lambda text: {"text_1": "a", "text_2": [text]}, RANKED["documents"][1]),
            },
        ),
    ),
}
# What the pooled model does not do: such a call is refused before its texts are read.
UNREAD = ("/v1/rerank", "/v2/rerank", "/v1/score")
# Its tests are in test_infill.py: the built-in model fills no gaps.
APART = {"/infill"}
# The path takes conversations alone. The limits of texts and ids are in test_decision_refusals.py.
OVER_GRPC_ALONE = {"Decide": {"text", "ids"}}
CASES = [(path, twin, kind) for path, twins in TWINS.items() for twin in twins for kind in twin.asks]


def kinds_of(message: Descriptor) -> set[str]:
    """Returns which kinds of input a request has."""
    names = {"text": "text", "texts": "text", "token_ids": "ids", "chat": "chat"}
    names |= {"query": "query", "documents": "documents"}
    found = {names[field.name] for field in message.fields if field.name in names}
    inner = [field for field in message.fields if field.name == "request"]
    for field in inner:
        assert field.type == FieldDescriptor.TYPE_MESSAGE
        found |= kinds_of(field.message_type)
    return found


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http(*LIMITS, POOLED) as it:
        yield it


def test_htp_13_every_path_with_a_body_has_a_method_and_every_input_of_it_a_limit(http: HttpServed) -> None:
    routes = make_routes(http.served.state, Probes(http.served.state)).all
    assert {route.path for route in routes if route.has_body} == set(TWINS) | APART
    methods = {method.name for service in (INFERENCE, TOKENIZER, MODEL) for method in service.methods}
    assert {twin.method for twins in TWINS.values() for twin in twins} == methods - WITHOUT_PATH
    for service in (INFERENCE, TOKENIZER):
        for method in service.methods:
            if method.name not in WITHOUT_PATH:
                twins = [twin for each in TWINS.values() for twin in each if twin.method == method.name]
                asked = {kind for twin in twins for kind in twin.asks} | OVER_GRPC_ALONE.get(method.name, set())
                assert asked == kinds_of(method.input_type), method.name


def refused(http: HttpServed, path: str, body: Any) -> str:
    before = http.served.stats().n_steps
    reply = http.client.post(path, body)
    assert reply.status >= 400, reply.content[:200]
    assert http.served.stats().n_steps == before
    return str(reply.error["type" if is_of_anthropic(path) else "code"])


def word_of(path: str, reason: str) -> str:
    """Returns what an error of a path calls a reason."""
    if is_of_anthropic(path):
        return "rate_limit_error" if reason == "QUEUE_FULL" else "invalid_request_error"
    return CODES.get(reason, reason.lower())


@pytest.mark.parametrize(("path", "twin", "kind"), CASES, ids=lambda value: getattr(value, "method", str(value)))
def test_htp_13_a_path_refuses_what_its_method_refuses(http: HttpServed, path: str, twin: Twin, kind: str) -> None:
    value = TOO_MANY_IDS if kind == "ids" else TOO_LONG
    if twin.method == "Detokenize":
        value = [5] * 1_048_577
    server: AbstractContextManager[HttpServed] = nullcontext(http)
    if twin.method == "Detokenize":
        # So many ids fit only into the default message.
        server = serve_http()
    with server as it:
        reason = twin.fails(it, kind, value)
        code = refused(it, path, twin.asks[kind][0](value))
        assert path in UNREAD or code == word_of(path, reason)


@pytest.mark.parametrize(("path", "twin", "kind"), CASES, ids=lambda value: getattr(value, "method", str(value)))
def test_htp_13_a_path_waits_for_no_more_text_than_its_method(
    http: HttpServed, path: str, twin: Twin, kind: str
) -> None:
    """The workers have as much text as they may."""
    full = "NOT_SUPPORTED_BY_MODEL" if path in UNREAD else "QUEUE_FULL"
    workers = http.served.state.workers
    value = [5] * 1000 if kind == "ids" else LONG[:2000]
    http.served.run(_set(workers, workers._max_bytes))
    try:
        assert twin.fails(http, kind, value) == full
        assert refused(http, path, twin.asks[kind][0](value)) == word_of(path, full)
    finally:
        http.served.run(_set(workers, 0))


async def _set(workers: Any, n_bytes: int) -> None:
    workers.n_bytes = n_bytes


def longest(http: HttpServed) -> int:
    tokenizer = http.served.state.model.tokenizer
    plain = sorted(set(range(2047)) - tokenizer.special_ids)
    return max(plain, key=lambda token: len(tokenizer.token_bytes(token)))


REPLIES: dict[str, tuple[Twin, str]] = {
    "tokens of a text": (TWINS["/tokenize"][0], "text"),
    "tokens of a chat": (TWINS["/tokenize"][1], "chat"),
    "text of tokens": (TWINS["/detokenize"][0], "ids"),
}


@pytest.mark.parametrize("what", REPLIES)
def test_htp_13_rpc_35_a_reply_that_is_too_large_is_refused(what: str) -> None:
    twin, kind = REPLIES[what]
    path = "/detokenize" if kind == "ids" else "/tokenize"
    with serve_http("limits.max_message_bytes=64KiB") as http:
        value = [longest(http)] * 10_000 if kind == "ids" else "漢" * 20_000
        assert twin.fails(http, kind, value) == "FIELD_INVALID"
        body = {**twin.asks[kind][0](value), **({} if kind == "ids" else {"return_token_strs": True})}
        assert len(json.dumps(body, ensure_ascii=False).encode()) < 64 * 1024
        reply = http.client.post(path, json.dumps(body, ensure_ascii=False).encode())
        assert reply.status == 400 and "limits.max_message_bytes" in reply.error["message"]


def test_htp_13_the_prompts_of_a_completion_have_one_limit_together(http: HttpServed) -> None:
    half = "ab " * (PROMPT_BYTES // 6 + 10)
    reply = http.client.post("/v1/completions", {"prompt": [half, half], "max_tokens": 1})
    assert reply.refusal == (400, "field_invalid", "prompt")


def unread(http: HttpServed) -> int:
    return http.served.state.sending.n_bytes


def test_htp_13_replies_that_nobody_reads_take_no_more_than_the_plan_has() -> None:
    # The replies are larger than what the system takes for a connection.
    with serve_http("http.head_timeout=10m") as http:
        most = one_way_bytes(http.served.state.settings.limits)
        ids = [longest(http)] * 250_000
        body = json.dumps({"tokens": ids}).encode()
        form = ("Content-Type: application/json", f"Content-Length: {len(body)}")
        n_bytes = len(http.client.post("/detokenize", body).content)
        kept = [http.socket(receive_buffer=4096) for _ in range(2 * most // n_bytes)]
        for connection in kept:
            connection.sendall(head("POST /detokenize HTTP/1.1", *form) + body)
        http.served.wait_until(lambda: unread(http) + n_bytes > most, "no further reply has room")
        assert unread(http) <= most
        reply = http.client.post("/detokenize", body)
        assert (reply.status, reply.error["code"]) == (429, CODES["QUEUE_FULL"])
        assert float(reply.headers["retry-after"]) > 0
        # A small answer needs no room.
        assert http.client.post("/detokenize", {"tokens": [5]}).status == 200
        for connection in kept:
            connection.close()
        http.wait_for_rest()
        assert unread(http) == 0
        assert http.client.post("/detokenize", body).status == 200


def test_htp_13_rpc_35_replies_of_grpc_that_nobody_reads_count_too() -> None:
    with serve_http("limits.max_message_bytes=1MiB") as http, ExitStack() as connections:
        most, twin = one_way_bytes(http.served.state.settings.limits), TWINS["/detokenize"][0]
        ids = [longest(http)] * 30_000
        descriptor = TOKENIZER.methods_by_name["Detokenize"]
        content = GetMessageClass(descriptor.input_type)(**twin.asks["ids"][1](ids)).SerializeToString()
        message = b"\0" + len(content).to_bytes(4, "big") + content
        assert len(message) < 65535  # the window of a connection that has just begun
        begin = frame(HEADERS, fields(*call_fields(f"/{TOKENIZER.full_name}/Detokenize")), flags=END_HEADERS, stream=1)
        pieces = [frame(DATA, message[i : i + 16384], stream=1) for i in range(0, len(message), 16384)]
        n_bytes = 2 * len(http.served.state.model.tokenizer.decode_bytes(ids))
        address = http.served.address
        kept = [connections.enter_context(raw_connection(address)) for _ in range(2 * most // n_bytes)]
        for connection in kept:
            connection.send(begin, *pieces, frame(DATA, flags=END_STREAM, stream=1))
        http.served.wait_until(lambda: unread(http) + n_bytes > most, "no further reply has room")
        assert unread(http) <= most
        assert twin.fails(http, "ids", ids) == "QUEUE_FULL"
        for connection in kept:
            connection.send(frame(WINDOW_UPDATE, b"\0\xff\xff\xff"), frame(WINDOW_UPDATE, b"\0\xff\xff\xff", stream=1))
        http.served.wait_until(lambda: unread(http) == 0, "the replies are sent")


def test_htp_14_rpc_30_health_is_answered_between_the_pieces_of_a_large_body(
    http: HttpServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_asked: list[int] = []
    whole = strict_json._LongValues._parsed

    def asking(values: Any, first: int, end: int, before: str, after: str) -> object:
        assert threading.current_thread().name != LOOP_THREAD, "a piece is parsed on the event loop"
        n_asked.append(end - first)
        assert http.client.get("/health").status == 200
        return whole(values, first, end, before, after)

    monkeypatch.setattr(strict_json._LongValues, "_parsed", asking)
    ids = json.dumps([5] * 60_000).encode()
    text = json.dumps("a\n" * 70_000).encode()
    for body in (b'{"tokens":' + ids + b"}", b'{"prompt":' + text + b"}"):
        assert http.client.post("/detokenize" if b"tokens" in body[:9] else "/tokenize", body).status in (200, 400)
    assert len(n_asked) > 15 and max(n_asked) < 2 * strict_json.PIECE_CHARS


def test_htp_14_large_bodies_are_parsed_one_at_a_time(http: HttpServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take as much memory as the plan has for one large text."""
    parsing, most = 0, 0
    entering = threading.Lock()
    whole = bodies.parse_object

    def counting(content: bytes, max_bytes: int) -> Any:
        nonlocal parsing, most
        with entering:
            parsing += 1
            most = max(most, parsing)
        value = whole(content, max_bytes)
        with entering:
            parsing -= 1
        return value

    monkeypatch.setattr(bodies, "parse_object", counting)
    body = json.dumps({"tokens": [5] * 80_000}).encode()
    with ThreadPoolExecutor(6) as clients:
        replies = list(clients.map(lambda _: http.client.post("/detokenize", body).status, range(6)))
    assert replies == [200] * 6 and most == 1
