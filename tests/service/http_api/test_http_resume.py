"""Streams that break over HTTP and go on: the events before and after it are those of the undisturbed stream."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from zlib import crc32

import anthropic
import httpx2
import openai
import pytest

from imp_service.api.replies import Finished, Started
from imp_service.http_api.answers.marks import END_OF_EVENT
from imp_service.serving.errors.error_table import ERRORS
from imp_service.serving.generation_stream import GenerationStream
from imp_service.serving.refusal import Refusal
from support.calls.generations import saying, spelled, vocabulary
from support.calls.marked_streams import Unit, events_of, resume_of, stream_bytes, units_of
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.servers.http_served import HttpServed, serve_http
from support.servers.messages_served import CHAT_TOOLS, SPOKEN, TOOLS, serve_template
from support.servers.served_models import ENDLESS, scripted
from support.text.tool_templates import HERMES

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
PATHS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
# What ends an answer to a caller that has every end.
OVER = {
    CHAT: [b"data: [DONE]\n\n"],
    COMPLETIONS: [b"data: [DONE]\n\n"],
    MESSAGES: [b'event: message_stop\ndata: {"type":"message_stop"}\n\n'],
}
TEXTS = ("Hello", "日本", "A smile 😀 is", "Once upon a time", "the cat sat. the cat sat. the cat")
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in CHAT_TOOLS]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "sky": {"enum": ["red", "blue"]}},
    "required": ["city", "sky"],
    "additionalProperties": False,
}
# A stream that breaks here goes on there: neither threads, caches nor guesses change its tokens.
OTHERS = ("device.threads=2", "kv.prefix_cache=false", "speculation.drafters=[]", "scheduler.prefill_chunk=7")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("here"), HERMES) as it:
        yield it


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("there"), HERMES, "limits.max_context=512", *OTHERS) as it:
        yield it


def asked(path: str, text: str, most: int) -> dict[str, Any]:
    """The fields that a path has for a text and the most tokens of its answer."""
    if path == COMPLETIONS:
        return {"prompt": text, "max_tokens": most}
    if path == RESPONSES:
        return {"input": text, "max_output_tokens": most}
    return {"messages": [{"role": "user", "content": text}], "max_tokens": most}


def constrained(path: str) -> dict[str, Any]:
    if path == RESPONSES:
        return {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}}
    if path == MESSAGES:
        return {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}


def calling(path: str) -> dict[str, Any]:
    if path == MESSAGES:
        return {"tools": TOOLS, "tool_choice": {"type": "any"}}
    return {"tools": FLAT_TOOLS if path == RESPONSES else CHAT_TOOLS, "tool_choice": "required"}


def a_request(rng: random.Random, path: str) -> dict[str, Any]:
    """Returns a random request."""
    body = {**asked(path, rng.choice(TEXTS), rng.choice((1, 7, 24, 48))), "seed": rng.getrandbits(63)}
    body |= {"temperature": rng.choice((0, 0.8, 1.5)), "repetition_penalty": rng.choice((1, 1.3)), "repeat_last_n": 9}
    kind = rng.choice(("text", "stop", "schema", "calls", "spoken"))
    if kind == "stop":
        body |= {"stop_sequences" if path == MESSAGES else "stop": ["e t", "and", ". "]}
        body["include_stop_str_in_output"] = rng.random() < 0.5
    elif kind == "schema":
        body |= constrained(path)
    elif kind == "calls" and path != COMPLETIONS:
        body |= calling(path)
    elif kind == "spoken":
        body |= {"grammar": SPOKEN}
    if path in (CHAT, COMPLETIONS):
        n = rng.choice((1, 1, 2, 3))
        body |= {"n": n, "return_token_ids": rng.random() < 0.3}
        # Its numbers depend on how the choices take turns.
        body["stream_options"] = {"include_usage": rng.random() < 0.7, "continuous_usage_stats": n == 1}
        if rng.random() < 0.4:
            body |= {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2}
    if path == RESPONSES and rng.random() < 0.4:
        body["top_logprobs"] = 2
    return body


def comparable(content: bytes) -> list[Any]:
    """Returns the events of each choice, then those without one, without what depends on caches."""
    found = []
    for line in content.decode().split("\n"):
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            found.append(data if data == "[DONE]" else _without_caches(json.loads(data)))
    return sorted(found, key=_choice)


def _choice(event: Any) -> int:
    choices = event.get("choices") if isinstance(event, dict) else None
    return choices[0]["index"] if choices else 9 if isinstance(event, str) or "choices" in event else 0


def _without_caches(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_caches(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "cache_read_input_tokens" in value:
        value = {**value, "input_tokens": value["input_tokens"] + value["cache_read_input_tokens"]}
    left_out = ("cached_tokens", "cache_read_input_tokens")
    return {name: _without_caches(each) for name, each in value.items() if name not in left_out}


def whole(http: HttpServed, path: str, body: dict[str, Any]) -> list[Unit]:
    """Returns the units of an undisturbed stream."""
    units = units_of(stream_bytes(http, path, {**body, "resume": {}}))
    ended = sorted(index for each in units for index in each.mark.get("finished", ()))
    assert "origin" in units[0].mark and ended == [*range(body.get("n", 1))]
    return units


def rest(http: HttpServed, path: str, body: dict[str, Any], came: list[Unit]) -> list[Unit]:
    """Returns the units of the stream that goes on behind these."""
    units = units_of(stream_bytes(http, path, {**body, "resume": resume_of(came)}))
    assert units[0].mark == {**came[0].mark, "events": 0}
    if sum(len(each.mark.get("finished", ())) for each in came) < body.get("n", 1):
        return units[1:]
    [over] = units[1:]
    assert over == Unit({"over": True, "events": len(over.events)}, OVER.get(path, []))
    return []


@pytest.mark.parametrize("path", PATHS)
def test_rsm_17_c15_any_stream_goes_on_at_any_cut(
    here: HttpServed, there: HttpServed, path: str, repeats: Repeats
) -> None:
    for number in range(repeats(20)):
        rng = random.Random(f"{path} {number}")
        # Chunks of one token: others depend on the time.
        body = {**a_request(rng, path), "max_chunk_tokens": 1}
        units = whole(here, path, body)
        expected = comparable(events_of(units))
        for n in range(1, len(units) + 1):
            came = units[:n]
            found = events_of(came) + events_of(rest(there, path, body, came))
            assert comparable(found) == expected, (body, n)


@pytest.mark.parametrize("path", PATHS)
def test_rsm_17_chunks_of_any_size_go_on(here: HttpServed, there: HttpServed, path: str, repeats: Repeats) -> None:
    """How tokens come together depends on the time, so texts are compared, and what numbers items and blocks."""
    for number in range(repeats(10)):
        rng = random.Random(f"chunks {path} {number}")
        body = {**a_request(rng, path), "grammar": SPOKEN, "max_tokens": 64, "max_chunk_tokens": rng.choice((3, 8))}
        for name in ("response_format", "text", "output_config", "tools", "tool_choice", "stop", "stop_sequences"):
            body.pop(name, None)
        if path == RESPONSES:
            body["max_output_tokens"] = body.pop("max_tokens")
        units = whole(here, path, body)
        expected = read_by_sdk(path, events_of(units))
        for n in sorted(rng.sample(range(1, len(units) + 1), min(4, len(units)))):
            came = units[:n]
            found = events_of(came) + events_of(rest(there, path, body, came))
            if path in (RESPONSES, MESSAGES):
                check_numbers(path, found)
            assert read_by_sdk(path, found) == expected, (body, n)


def check_numbers(path: str, content: bytes) -> None:
    """Checks that events are numbered as in one stream, and that items and blocks begin and end in order."""
    lines = content.decode().split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    if path == RESPONSES:
        assert [each["sequence_number"] for each in events] == [*range(len(events))]
    place = {RESPONSES: "output_index", MESSAGES: "index"}[path]
    begins = [each[place] for each in events if each["type"].endswith(("output_item.added", "content_block_start"))]
    ends = [each[place] for each in events if each["type"].endswith(("output_item.done", "content_block_stop"))]
    assert begins == ends == [*range(len(begins))]


def read_by_sdk(path: str, content: bytes) -> Any:
    """Returns what the official client makes of a stream, without what depends on caches."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=content, headers={"content-type": "text/event-stream"})

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as transport:
        if path == MESSAGES:
            with (
                anthropic.Anthropic(api_key="any", base_url="http://imp", http_client=transport) as client,
                client.messages.stream(model="", max_tokens=1, messages=[]) as messages,
            ):
                return _without_caches(messages.get_final_message().to_dict())
        with openai.OpenAI(api_key="any", base_url="http://imp/v1", http_client=transport) as client:
            if path == CHAT:
                with client.chat.completions.stream(model="", messages=[]) as chat:
                    *_, _ = chat  # get_final_completion() refuses an answer that max_tokens cut
                    return _without_caches(chat.current_completion_snapshot.to_dict())
            if path == RESPONSES:
                with client.responses.stream(model="", input="") as responses:
                    *_, last = responses  # get_final_response() refuses an answer that a limit cut
                    return _without_caches(last.to_dict(warnings=False))
            texts: dict[int, list[Any]] = {}
            for event in client.completions.create(model="", prompt="", stream=True):
                for choice in event.choices:
                    texts.setdefault(choice.index, []).append(choice.text)
            return {index: "".join(each) for index, each in texts.items()}


@pytest.mark.parametrize("path", PATHS)
def test_rsm_17_the_official_clients_read_a_joined_stream(here: HttpServed, there: HttpServed, path: str) -> None:
    rng = random.Random(path)
    for _ in range(3):
        body = {**a_request(rng, path), "max_chunk_tokens": 1}
        units = whole(here, path, body)
        came = units[: rng.randrange(1, len(units))]
        found = events_of(came) + events_of(rest(there, path, body, came))
        assert read_by_sdk(path, found) == read_by_sdk(path, events_of(units))


def test_rsm_17_the_end_of_a_response_has_the_scores_of_told_tokens(here: HttpServed, there: HttpServed) -> None:
    body = {**asked(RESPONSES, "A smile 😀 is", 16), "seed": 5, "temperature": 1, "top_logprobs": 3, "ignore_eos": True}
    units = whole(here, RESPONSES, body)
    came = units[: len(units) // 2]
    last = comparable(events_of(rest(there, RESPONSES, body, came)))[-1]
    (item,) = last["response"]["output"]
    assert len(item["content"][0]["logprobs"]) == 16
    assert last["response"] == comparable(events_of(units))[-1]["response"]


@pytest.mark.parametrize("path", PATHS)
def test_rsm_17_an_answer_keeps_its_name(here: HttpServed, there: HttpServed, path: str) -> None:
    body = asked(path, "Hello", 8)
    units = units_of(stream_bytes(here, path, {**body, "resume": {}}, **{"x-request-id": "first"}))
    came = units[:3]
    content = stream_bytes(there, path, {**body, "resume": resume_of(came)}, **{"x-request-id": "second"})
    assert b"second" not in content and units_of(content)[0].mark["id"] == came[0].mark["id"]
    assert "first" in came[0].mark["id"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("n", [1, 2])
def test_rsm_17_of_an_answer_whose_ends_came_only_its_end_is_left(here: HttpServed, path: str, n: int) -> None:
    body = {**asked(path, "Hello", 8), "seed": 1}
    if path in (CHAT, COMPLETIONS):
        body |= {"n": n, "stream_options": {"include_usage": True}}
    units = whole(here, path, body)
    assert rest(here, path, body, units) == []


TOLD = {"token_ids": [1, 2], "finished": False}
ORIGIN = {"server": "0" * 16, "request": "0" * 32, "seed": "7", "created": 1}
IDS = {CHAT: "chatcmpl-1", COMPLETIONS: "cmpl-1", RESPONSES: "resp_1", MESSAGES: "msg_1"}
# What replaces a part of a field that is right, and the path in the refusal.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"origin": None}, ".origin"),
    ({"origin": {**ORIGIN, "seed": 7}}, ".origin.seed"),
    ({"origin": {**ORIGIN, "seed": "-7"}}, ".origin.seed"),
    ({"origin": {**ORIGIN, "seed": "9" * 21}}, ".origin.seed"),
    ({"origin": {**ORIGIN, "server": 7}}, ".origin.server"),
    ({"origin": {**ORIGIN, "request": None}}, ".origin.request"),
    ({"origin": {**ORIGIN, "created": -1}}, ".origin.created"),
    ({"origin": {**ORIGIN, "nosuch": 1}}, ".origin.nosuch"),
    ({"origin": []}, ".origin"),
    ({"id": None}, ".id"),
    ({"id": "other-1"}, ".id"),
    ({"id": "x" * 300}, ".id"),
    ({"id": "chatcmpl-1\n: imp {}"}, ".id"),
    ({"created": "1"}, ".created"),
    ({"created": 2**60}, ".created"),
    ({"sequences": None}, ".sequences"),
    ({"sequences": {}}, ".sequences"),
    ({"sequences": [7]}, ".sequences[0]"),
    ({"sequences": [{}]}, ".sequences[0].token_ids"),
    ({"sequences": [{"token_ids": [1, "2"]}]}, ".sequences[0].token_ids[1]"),
    ({"sequences": [{**TOLD, "finished": 1}]}, ".sequences[0].finished"),
    ({"sequences": [{**TOLD, "chunks": [1]}]}, ".sequences[0].chunks"),
    ({"sequences": [{**TOLD, "chunks": [3, -1]}]}, ".sequences[0].chunks"),
    ({"sequences": [{**TOLD, "chunks": [1, "1"]}]}, ".sequences[0].chunks[1]"),
    ({"sequences": [TOLD, TOLD]}, ".sequences"),
    ({"sequences": [{"token_ids": [10**9]}]}, ".sequences[0].token_ids[0]"),
    ({"nosuch": 1}, ".nosuch"),
]


def refusal_of(http: HttpServed, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Returns the status of a refusal, and its words. Nothing was evaluated."""
    before = http.served.stats().n_steps
    reply = http.client.post(path, body)
    assert http.served.stats().n_steps == before
    return reply.status, reply.error["message"]


@pytest.mark.parametrize("path", PATHS)
def test_rsm_14_a_wrong_field_is_refused_with_its_path(here: HttpServed, path: str) -> None:
    right = {"origin": ORIGIN, "id": IDS[path], "created": 1, "sequences": [TOLD]}
    body = {**asked(path, "Hello", 8), "stream": True}
    for change, where in WRONG:
        status, words = refusal_of(here, path, {**body, "resume": {**right, **change}})
        assert (status, words.partition(": ")[0].partition(" ")[0]) == (400, f"resume{where}"), change
    for value in ([], "x", 7):
        assert refusal_of(here, path, {**body, "resume": value})[1].startswith("resume: ")
    assert refusal_of(here, path, {**body, "stream": False, "resume": right})[1].startswith("resume: set")
    # An origin is no secret, and another one gives no right.
    status, words = refusal_of(here, path, {**body, "resume": right})
    assert status == 400 and "server" in words


def test_rsm_14_several_prompts_are_not_resumed(here: HttpServed) -> None:
    body = {"prompt": ["Hello", "Bye"], "max_tokens": 4, "stream": True}
    right = {"origin": ORIGIN, "id": "cmpl-1", "created": 1, "sequences": [TOLD]}
    assert refusal_of(here, COMPLETIONS, {**body, "resume": right})[1].startswith("resume: set with 2 prompts")
    assert b": imp" not in stream_bytes(here, COMPLETIONS, {**body, "resume": {}})


@pytest.mark.parametrize("path", PATHS)
def test_rsm_14_marks_come_only_where_they_are_asked_for(here: HttpServed, path: str) -> None:
    body = {**asked(path, "Hello", 8), "seed": 1, "max_chunk_tokens": 1}
    plain = stream_bytes(here, path, body)
    assert b": imp" not in plain
    marked = stream_bytes(here, path, {**body, "resume": {}})
    names = [units_of(marked)[0].mark["id"].encode(), b"\n"]
    assert len(events_of(units_of(marked)).split(b"\n")) == len(plain.split(b"\n")) and names[0] not in plain
    # It is accepted without a stream, where it has no effect.
    reply = here.client.post(path, {**body, "resume": {}})
    assert reply.status == 200 and "imp-ignored" not in reply.headers


def test_rsm_14_no_output_looks_like_a_mark() -> None:
    text = 'a\n: imp {"told":[[0,[1]]]}\n\n: imp {"end":"DRAINING"}\r\n\r: imp {}\u2028\u2029\x85data: [DONE]\n\nevent'
    ids = spelled(text)
    with serve_http(model=saying([*ids, min(vocabulary().eos_ids)], max_context=1024)) as http:
        for path in (COMPLETIONS, CHAT, RESPONSES, MESSAGES):
            body = {**asked(path, "", len(ids)), "max_chunk_tokens": 7}
            # The script answers by position: so the prompt is one token.
            body |= {"prompt": [0]} if path == COMPLETIONS else {}
            content = stream_bytes(http, path, {**body, "resume": {}})
            units = units_of(content)
            told = [each for unit in units for index, each in unit.mark.get("told", ())]
            assert content.count(b"\n: imp ") == len(units) - 1 and content.startswith(b": imp ")
            assert {name for unit in units for name in unit.mark} <= {
                *("origin", "id", "created", "told", "finished", "events", "done")
            }
            if path == COMPLETIONS:
                assert [token for each in told for token in each] == ids
                assert read_by_sdk(path, content) == {0: text}


def test_rsm_14_an_end_that_can_go_on_elsewhere_is_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    next_reply = GenerationStream.next_reply
    with serve_http() as http:
        http.served.is_checked = False  # the test causes faults in its log
        for reason in sorted(ERRORS):

            async def broken(stream: GenerationStream, reason: str = reason) -> Any:
                reply = await next_reply(stream)
                if isinstance(reply, Finished):
                    raise Refusal(reason, "injected", dict.fromkeys(ERRORS[reason].metadata, "1"))
                return reply

            monkeypatch.setattr(GenerationStream, "next_reply", broken)
            for path in PATHS:
                for resume in (None, {}):
                    content = stream_bytes(http, path, {**asked(path, "x", 4), "resume": resume})
                    last = content.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
                    if resume is not None and reason in ("DRAINING", "DEVICE_FAULT", "STALLED"):
                        assert last == b': imp {"end":"%s"}' % reason.encode()
                    else:
                        assert (b'data: {"' in last and b"injected" in last) or reason == "BUG"
                        before = content.removesuffix(last + b"\n\n").removesuffix(b"\n\n").rpartition(b"\n\n")[2]
                        failed = f': imp {{"failed":"{reason}","events":1,"crc":{crc32(last + END_OF_EVENT)}}}'.encode()
                        assert (before == failed) == (resume is not None)


def test_rsm_14_a_stream_that_cannot_be_resumed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    next_reply = GenerationStream.next_reply

    async def without_origin(stream: GenerationStream) -> Any:
        reply = await next_reply(stream)
        return replace(reply, origin=None) if isinstance(reply, Started) else reply

    monkeypatch.setattr(GenerationStream, "next_reply", without_origin)
    with serve_http() as http:
        for path in PATHS:
            body = {**asked(path, "x", 4), "max_chunk_tokens": 1}
            content = stream_bytes(http, path, {**body, "resume": {}})
            assert content.startswith(b': imp {"origin":null}\n\n') and content.count(b": imp") == 1
            assert content.count(b"\n\n") == stream_bytes(http, path, body).count(b"\n\n") + 1


def begun(http: HttpServed, pool: ThreadPoolExecutor, tenant: str, resume: Any) -> tuple[list[Unit], Future[bytes]]:
    """Returns the first units of an endless stream, and what will be the rest of it. All have one x-request-id."""
    body = json.dumps({"prompt": [300], "max_tokens": -1, "stream": True, "resume": resume}).encode()
    connection = HTTPConnection("localhost")
    connection.sock = http.socket()
    named = {"x-request-id": "mine", "imp-tenant": tenant, "content-type": "application/json"}
    connection.request("POST", COMPLETIONS, body, named)
    response = connection.getresponse()
    content = b""
    while len(units_of(content)) < 3:
        content += response.readline()

    def read() -> bytes:
        with closing(connection), response:
            return response.read()

    return units_of(content), pool.submit(read)


def test_rsm_6_a_resumed_answer_ends_the_stream_that_it_goes_on_with() -> None:
    model = scripted(**ENDLESS)
    with ThreadPoolExecutor() as pool, serve_http("model.overrides.eos_token_ids=[]", model=model) as http:
        try:
            (came, old), (_, other) = begun(http, pool, "one", {}), begun(http, pool, "one", {})
            _, foreign = begun(http, pool, "two", resume_of(came))
            assert not old.done()
            _, new = begun(http, pool, "one", resume_of(came))
            assert b'"code":"aborted"' in old.result(HANGS_AFTER)
            assert not (other.done() or foreign.done() or new.done())
        finally:
            http.served.call(http.served.state.requests.abort_all)
