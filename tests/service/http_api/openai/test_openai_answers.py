"""An HTTP answer equals the same server's gRPC answer in tokens, text, scores, end and usage, streamed or not."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from imp_service import GenerationRequest
from imp_service.config import read_settings
from imp_service.http_api.json_text import dumps
from imp_service.http_api.tokens import JsonList
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.serving.generation_batch import replies_of
from imp_service.serving.large_replies import SLICE, ReplySize, sliced
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import ServedModel
from support.calls.generations import Output, Result, in_one, saying, spelled, vocabulary
from support.calls.openai_types import check_model
from support.models.tiny_vision_models import write_model_file
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import from_file

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEXTS = ("the cat", "Hello! What is", "日本", "A smile 😀 is", "Once upon a time")
EOS = 2047
FINISH = {"STOP": "stop", "MAX_TOKENS": "length", "CONTEXT_FULL": "length", "TIME_LIMIT": "length"}


def options(draw: random.Random) -> tuple[dict[str, Any], pb.GenerateRequest]:
    """Returns the same random options for HTTP and for gRPC."""
    request = pb.GenerateRequest()
    fields: dict[str, Any] = {}

    def put(name: str, where: Any, option: str, value: Any, told: Any = None) -> None:
        if draw.random() < 0.5:
            return
        fields[name] = value if told is None else told
        if isinstance(value, list):
            getattr(where, option).extend(value)
        elif isinstance(value, dict):
            getattr(where, option).update(value)
        else:
            setattr(where, option, value)

    sampling, stop = request.sampling, request.stop
    fields["seed"] = sampling.seed = draw.randrange(2**64)
    fields["max_tokens"] = stop.max_tokens = draw.choice((0, 1, 7, 24, 40))
    put("temperature", sampling, "temperature", draw.choice((0.0, 0.5, 1.0, 3.0)))
    put("top_p", sampling, "top_p", draw.choice((0.5, 0.9, 1.0)))
    put("top_k", sampling, "top_k", draw.choice((0, 5, 40)))
    put("min_p", sampling, "min_p", draw.choice((0.0, 0.125)))
    put("typical_p", sampling, "typical_p", draw.choice((0.5, 1.0)))
    put("frequency_penalty", sampling, "frequency_penalty", draw.choice((-1.0, 0.5)))
    put("presence_penalty", sampling, "presence_penalty", draw.choice((-1.0, 0.5)))
    put("repetition_penalty", sampling, "repetition_penalty", draw.choice((0.5, 1.25)))
    biases = {draw.randrange(2048): draw.choice((-100.0, 3.0)) for _ in range(3)}
    put("logit_bias", sampling, "logit_bias", biases, {str(token): bias for token, bias in biases.items()})
    put("stop", stop, "strings", draw.choice((["e"], ["the", "."], [" "])))
    put("stop_token_ids", stop, "token_ids", [draw.randrange(256, 600) for _ in range(30)])
    put("ignore_eos", stop, "ignore_eos", True)
    put("include_stop_str_in_output", stop, "include_match", True)
    put("cache_prompt", request.cache, "bypass_prefix", True, False)
    if draw.random() < 0.3:
        put("min_tokens", stop, "min_tokens", min(3, stop.max_tokens))
    if draw.random() < 0.3:
        put("skip_special_tokens", request.output, "special_tokens", True, False)
    put("n", request, "num_sequences", draw.choice((1, 2, 3)))
    if draw.random() < 0.2:
        request.constraint.regex = fields.setdefault("structured_outputs", {"regex": "[a-z ]{3,30}"})["regex"]
    return fields, request


def piece_of(token: int) -> bytes:
    return bytes(vocabulary().token_bytes(token))


def shown_bytes(token: int, request: pb.GenerateRequest) -> list[int]:
    is_hidden = token in vocabulary().table.special and not request.output.special_tokens
    return [] if is_hidden else list(piece_of(token))


def entry(token: int, logprob: float, request: pb.GenerateRequest) -> dict[str, Any]:
    return {
        "token": piece_of(token).decode("utf-8", "replace"),
        "bytes": shown_bytes(token, request),
        "logprob": logprob if math.isfinite(logprob) else -9999.0,
        # Every request of this module requests ids.
        "token_id": token,
    }


def expected_chat(result: Result, fields: dict[str, Any], request: pb.GenerateRequest) -> list[dict[str, Any]]:
    """Returns the choices that correspond to gRPC's answer."""
    choices = []
    for i, output in enumerate(result.outputs):
        entries = None
        if fields.get("logprobs"):
            ranked = output.candidates or [[]] * len(output.ids)
            scored = [
                {
                    **entry(token, logprob, request),
                    "top_logprobs": [entry(*each, request) for each in items],
                }
                for token, logprob, items in zip(output.ids, output.logprobs, ranked, strict=True)
            ]
            entries = {"content": scored, "refusal": None}
        choices.append(
            {
                "index": i,
                "message": {"role": "assistant", "content": output.text, "refusal": None},
                "logprobs": entries,
                "finish_reason": FINISH[output.reason],
                "token_ids": output.ids,
            }
        )
    return choices


def expected_chat_usage(result: Result) -> dict[str, Any]:
    details = {"reasoning_tokens": result.usage.reasoning_tokens}
    return {**expected_usage(result), "completion_tokens_details": details}


def expected_usage(result: Result) -> dict[str, Any]:
    usage = result.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }


def joined_chat(events: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    """Joins the choices of a stream as its clients do."""
    choices: list[dict[str, Any]] = [
        {
            "index": i,
            "message": {"role": None, "content": "", "refusal": None},
            "logprobs": None,
            "finish_reason": None,
            "token_ids": [],
        }
        for i in range(n)
    ]
    for event in events:
        for each in event["choices"]:
            choice, delta = choices[each["index"]], each["delta"]
            assert choice["finish_reason"] is None
            choice["message"]["role"] = delta.get("role") or choice["message"]["role"]
            choice["message"]["content"] += delta.get("content") or ""
            choice["token_ids"] += each.get("token_ids", [])
            if each["logprobs"]:
                choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
                choice["logprobs"]["content"] += each["logprobs"]["content"]
            choice["finish_reason"] = each["finish_reason"]
    return choices


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_htp_2_a_chat_is_answered_as_over_grpc(http: HttpServed, seed: int) -> None:
    draw = random.Random(seed)
    fields, request = options(draw)
    text = draw.choice(TEXTS)
    request.chat.messages.add(role="user", content=text)
    if draw.random() < 0.5:
        fields["logprobs"] = request.output.logprobs = True
        fields["top_logprobs"] = request.output.top_logprobs = draw.choice((0, 1, 5, 20))
    body = {"messages": [{"role": "user", "content": text}], "return_token_ids": True, **fields}
    in_one(http.served, request)  # From here on the prompt is cached.
    result = in_one(http.served, request)
    expected = expected_chat(result, fields, request)
    reply = http.client.post(CHAT, body)
    assert reply.status == 200, reply.content
    assert [{**each, "token_ids": each["token_ids"]} for each in reply.json["choices"]] == expected
    assert reply.json["usage"] == expected_chat_usage(result)
    streamed = http.client.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    joined = joined_chat(streamed.objects, len(expected))
    if fields.get("logprobs"):
        for each in joined:
            each["logprobs"] = each["logprobs"] or {"content": [], "refusal": None}
    assert joined == expected
    assert streamed.objects[-1]["usage"] == expected_chat_usage(result)


def expected_completion(
    result: Result, output: Output, fields: dict[str, Any], prefix: str = ""
) -> tuple[str, str, list[int], dict[str, Any] | None]:
    """Returns text, finish reason, ids and log probabilities of a choice, without offsets."""
    n_top = fields.get("logprobs")
    scores = None
    if n_top is not None:
        ranked = output.candidates or [[]] * len(output.ids)
        tops = []
        for items in ranked:
            top: dict[str, float] = {}
            for token, logprob in items:
                top.setdefault(piece_of(token).decode("utf-8", "replace"), max(logprob, -9999.0))
            tops.append(top)
        scores = {
            "tokens": [piece_of(token).decode("utf-8", "replace") for token in output.ids],
            "token_logprobs": [max(each, -9999.0) for each in output.logprobs],
            "top_logprobs": tops if n_top else None,
        }
    return prefix + output.text, FINISH[output.reason], output.ids, scores


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_htp_2_a_completion_is_answered_as_over_grpc(http: HttpServed, seed: int) -> None:
    draw = random.Random(seed + 1000)
    fields, request = options(draw)
    text = draw.choice(TEXTS)
    ids = vocabulary().encode(text)
    prompt: Any = text if draw.random() < 0.5 else ids
    if prompt is text:
        request.text = text
    else:
        request.token_ids.ids.extend(ids)
    if draw.random() < 0.5:
        fields["logprobs"] = request.output.top_logprobs = draw.choice((0, 1, 5, 20))
        request.output.logprobs = True
    body = {"prompt": prompt, "return_token_ids": True, **fields}
    in_one(http.served, request)
    result = in_one(http.served, request)
    expected = [expected_completion(result, output, fields) for output in result.outputs]
    reply = http.client.post(COMPLETIONS, body)
    assert reply.status == 200, reply.content
    found = []
    for choice in reply.json["choices"]:
        scores = choice["logprobs"]
        if scores is not None:
            check_offsets(scores.pop("text_offset"), scores["tokens"], result, choice["token_ids"], request)
            assert [each["token_id"] for each in scores.pop("content")] == choice["token_ids"]
        found.append((choice["text"], choice["finish_reason"], choice["token_ids"], scores))
    assert found == expected
    assert reply.json["usage"] == expected_usage(result)
    streamed = http.client.stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert joined_completion(streamed.objects, len(expected)) == [
        (text, finish, ids, (scores or {}).get("token_logprobs", [])) for text, finish, ids, scores in expected
    ]
    assert streamed.objects[-1]["usage"] == expected_usage(result)


def check_offsets(
    offsets: list[int], tokens: list[str], result: Result, ids: list[int], request: pb.GenerateRequest
) -> None:
    """Checks that each token begins where the previous text ends, and a partial character at its beginning."""
    so_far = b""
    for offset, token in zip(offsets, ids, strict=True):
        assert offset == len(so_far.decode("utf-8", "ignore")), tokens
        so_far += bytes(shown_bytes(token, request))


def joined_completion(events: list[dict[str, Any]], n: int) -> list[tuple[str, str | None, list[int], list[float]]]:
    texts, ends, ids = [""] * n, [None] * n, [[] for _ in range(n)]
    scores: list[list[float]] = [[] for _ in range(n)]
    for event in events:
        for each in event["choices"]:
            i = each["index"]
            texts[i] += each["text"]
            ends[i] = each["finish_reason"]
            ids[i] += each["token_ids"]
            scores[i] += (each["logprobs"] or {"token_logprobs": []})["token_logprobs"]
    return list(zip(texts, ends, ids, scores, strict=True))


def test_oai_8_an_echoed_text_is_scored_as_over_grpc(http: HttpServed) -> None:
    prompts = [vocabulary().encode(text) for text in (*TEXTS, "x")]
    reply = http.complete(prompts, echo=True, logprobs=3, max_tokens=0)
    assert reply.status == 200, reply.content
    for ids, choice in zip(prompts, reply.json["choices"], strict=True):
        request = pb.GenerateRequest(output=types_pb2.OutputOptions(prompt_logprobs=True, top_logprobs=3))
        request.stop.max_tokens = 0
        request.token_ids.ids.extend(ids)
        scored = in_one(http.served, request).started.prompt
        scores = choice["logprobs"]
        assert choice["text"] == vocabulary().decode(ids)
        assert scores["tokens"] == [piece_of(token).decode("utf-8", "replace") for token in ids]
        assert scores["token_logprobs"] == [None, *scored.logprobs[1:]]
        assert math.isnan(scored.logprobs[0]) and scores["top_logprobs"][0] is None
        ranked = scored.candidates or [pb.GenerationChunk().candidates] * len(ids)
        for items, top in list(zip(ranked, scores["top_logprobs"], strict=True))[1:]:
            assert [each.logprob for each in items.items] == list(top.values())
        assert choice["finish_reason"] == "length"
    assert [each["index"] for each in reply.json["choices"]] == list(range(len(prompts)))


def test_oai_8_text_offsets_are_those_of_the_text(http: HttpServed) -> None:
    """This holds after a character of several tokens too."""
    text = "A 😀 b 日本 c"
    choice = http.complete(text, echo=True, logprobs=0, max_tokens=0).choice
    scores = choice["logprobs"]
    assert choice["text"] == text
    for token, offset in zip(scores["tokens"], scores["text_offset"], strict=True):
        if "\ufffd" not in token:
            assert text[offset : offset + len(token)] == token


def test_htp_2_choices_of_several_prompts_are_numbered_through(http: HttpServed) -> None:
    prompts = ["the cat", "Hello", "Once upon"]
    fields: dict[str, Any] = {"max_tokens": 5, "temperature": 0, "n": 2, "return_token_ids": True}
    alone = [http.complete(prompt, **fields) for prompt in prompts]
    together = http.complete(prompts, **fields)
    assert [each["index"] for each in together.json["choices"]] == list(range(6))
    texts = [choice["text"] for reply in alone for choice in reply.json["choices"]]
    assert [choice["text"] for choice in together.json["choices"]] == texts
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together.json["usage"][name] == sum(reply.json["usage"][name] for reply in alone)
    stream_options = {"include_usage": True}
    events = http.client.stream(COMPLETIONS, {"prompt": prompts, **fields, "stream_options": stream_options})
    assert [text for text, *_ in joined_completion(events.objects, 6)] == texts
    assert events.objects[-1]["usage"]["total_tokens"] == together.json["usage"]["total_tokens"]


def test_htp_2_one_prompt_that_fails_fails_all(http: HttpServed) -> None:
    reply = http.complete([[300] * 8, [300] * 600], max_tokens=100)
    assert reply.refusal == (400, "context_length_exceeded", None)
    http.wait_for_rest()


@pytest.mark.parametrize(
    ("prompts", "fields", "code"),
    [
        ([[300] * 8, [300] * 600], {"max_tokens": 4}, "context_length_exceeded"),
        ([[300] * 8, "the " * 3000], {"max_tokens": 4}, "context_length_exceeded"),
        ([[300] * 8, [300] * 513], {"max_tokens": 1}, "context_length_exceeded"),
    ],
)
def test_oai_13_every_prompt_is_checked_before_a_stream_begins(
    http: HttpServed, prompts: list[Any], fields: dict[str, Any], code: str
) -> None:
    n_steps = http.served.stats().n_steps
    for is_streamed in (False, True):
        reply = http.complete(prompts, stream=is_streamed, **fields)
        assert (reply.status, reply.error["code"]) == (400, code)
    assert http.served.stats().n_steps == n_steps


@pytest.mark.parametrize(("waiting", "n"), [(1, 1), (2, 2), (5, 2)])
def test_oai_13_a_batch_may_have_more_prompts_than_the_queue_has_places(waiting: int, n: int) -> None:
    prompts = [f"number {i}" for i in range(12)]
    fields = {"max_tokens": 4, "seed": 3, "n": n, "ignore_eos": True, "return_token_ids": True}
    with serve_http(f"scheduler.max_waiting={waiting}", "limits.max_context=512") as small:
        together = small.complete(prompts, **fields)
        assert together.status == 200
        alone = [small.complete(prompt, **fields).json["choices"] for prompt in prompts]
        ids = [choice["token_ids"] for choices in alone for choice in choices]
        assert [choice["token_ids"] for choice in together.json["choices"]] == ids
        events = small.client.stream(COMPLETIONS, {"prompt": prompts, **fields})
        assert [tokens for _, _, tokens, _ in joined_completion(events.objects, 12 * n)] == ids
        assert small.complete(prompts, **{**fields, "n": waiting + 1}).refusal[:2] == (400, "field_invalid")
        small.wait_for_rest()


def test_oai_13_a_batch_does_not_fill_the_queue_twice() -> None:
    """The engine is stopped: the batch fills the queue, and others of its tenant are refused."""

    def complete(small: HttpServed, prompt: Any, max_tokens: int) -> Any:
        body = {"prompt": prompt, "max_tokens": max_tokens}
        return small.client.post("/v1/completions", body, **{"imp-tenant": "a"})

    with (
        gate() as held,
        serve_http("scheduler.max_waiting=2", model=held.model()) as small,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(complete, small, [HELD - 2], 4)
        held.wait()
        batch = pool.submit(complete, small, [[300], [301], [302], [303]], 2)
        small.served.wait_until(lambda: len(small.served.state.requests) == 3, "the batch fills the queue")
        for prompt in ([300], [[300], [301]]):
            assert complete(small, prompt, 1).refusal[:2] == (429, "rate_limit_exceeded")
        held.open(ALL_STEPS)
        assert first.result().status == 200
        assert [choice["index"] for choice in batch.result().json["choices"]] == [0, 1, 2, 3]
        small.wait_for_rest()


class Refusing:
    """Starts generations without output. The second prompt is refused so many times."""

    def __init__(self, n_times: int, bound: str) -> None:
        self.n_times, self.bound = n_times, bound

    @asynccontextmanager
    async def start(self, prompt: int, _: Any) -> AsyncIterator[Any]:
        if prompt == 1 and self.n_times:
            self.n_times -= 1
            raise Refusal("QUEUE_FULL", "full", {"bound": self.bound})
        yield self

    async def next_reply(self) -> None:
        return None


def test_oai_13_a_batch_that_has_begun_waits_while_others_fill_the_queue() -> None:
    async def read(refusing: Refusing, n_prompts: int = 3) -> list[Any]:
        requests = [GenerationRequest([300 + i]) for i in range(n_prompts)]
        async with replies_of(requests, refusing.start, 8) as replies:
            return [reply async for reply in replies]

    refusing = Refusing(3, "scheduler.max_waiting")
    assert asyncio.run(read(refusing)) == [] and refusing.n_times == 0
    with pytest.raises(Refusal, match="QUEUE_FULL"):
        asyncio.run(read(Refusing(1, "deadline")))


def test_htp_2_each_of_many_prompts_waits_for_its_reader(http: HttpServed) -> None:
    prompts = [f"number {i}" for i in range(16)]
    body = {"prompt": prompts, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}
    events = http.client.stream(COMPLETIONS, body)
    assert [len(ids) for _, _, ids, _ in joined_completion(events.objects, 16)] == [20] * 16


def test_oai_2_usage_is_reported_where_it_is_asked_for(http: HttpServed) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "max_chunk_tokens": 1}
    plain = http.client.stream(CHAT, body).objects
    assert all("usage" not in each for each in plain)
    last = http.client.stream(CHAT, {**body, "stream_options": {"include_usage": True}}).objects
    assert [each["usage"] for each in last[:-1]] == [None] * (len(last) - 1)
    assert last[-1]["choices"] == [] and last[-1]["usage"]["completion_tokens"] == 6
    options = {"include_usage": True, "continuous_usage_stats": True}
    always = http.client.stream(CHAT, {**body, "stream_options": options}).objects
    counts = [each["usage"]["completion_tokens"] for each in always]
    assert counts == sorted(counts) and counts[-1] == 6 and set(counts) == set(range(7))


def test_oai_2_rsm_2_the_fingerprint_is_known_from_the_first_answer_on(http: HttpServed) -> None:
    http.served.state.digest.sha256 = ""
    expected = f"imp-{http.served.state.model.fingerprint.digest}"
    assert http.chat(max_tokens=1).json["system_fingerprint"] == expected
    events = http.client.stream(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).objects
    assert {event["system_fingerprint"] for event in events} == {expected}
    http.served.state.digest.sha256 = "0123456789abcdef" * 4
    assert http.client.get("/version").json["weights_sha256"] == "0123456789abcdef" * 4
    assert http.chat(max_tokens=1).json["system_fingerprint"] == expected


READABLE = "Füße, 你好, привет, 🙂 "
ESCAPED = "\x1b\x7f\x9b\u2028\u2029"


def bytes_of(http: HttpServed, body: dict[str, Any]) -> bytes:
    """Returns all bytes of a response."""
    content = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with http.socket() as connection:
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_oai_2_text_is_written_so_that_a_person_can_read_it() -> None:
    said = READABLE + ESCAPED
    body = {"prompt": [300], "max_tokens": len(said.encode()), "temperature": 0}
    with serve_http(model=saying(spelled(said))) as http:
        assert http.complete(**body).choice["text"] == said
        refused = {"prompt": [300], said: 1}
        assert http.complete(**refused).error["param"] == said
        for each in (body, body | {"stream": True}, refused):
            written = bytes_of(http, each)
            assert [letter for letter in READABLE if letter.encode() not in written] == []
            assert [letter for letter in ESCAPED if letter.encode() in written] == []
            assert [letter for letter in ESCAPED if f"\\u{ord(letter):04x}".encode() not in written] == []


@pytest.mark.parametrize("letter", ESCAPED)
def test_oai_2_a_letter_that_a_terminal_would_obey_is_escaped_in_any_company(letter: str) -> None:
    for text in (letter, f"a{letter}", f"ü{letter}"):
        assert letter not in dumps(text) and json.loads(dumps(text)) == text


def test_htp_2_a_candidate_beyond_the_vocabulary_has_no_text(tmp_path: Path) -> None:
    """A model may have more logits than tokens. They are never drawn."""
    with serve_http(model=from_file(write_model_file(tmp_path / "tiny.gguf"))) as http:
        n_tokens = http.served.state.model.n_tokens
        looks = {"logprobs": True, "top_logprobs": 20, "return_token_ids": True}
        content = http.chat("Hello", temperature=0, max_tokens=16, **looks).choice["logprobs"]["content"]
    beyond = [each for entry in content for each in entry["top_logprobs"] if each["token_id"] >= n_tokens]
    assert beyond and all((each["token"], each["bytes"]) == ("", []) for each in beyond)


def test_oai_2_every_model_entry_is_of_the_sdk(http: HttpServed) -> None:
    listed = http.client.get("/v1/models").json
    assert listed.keys() == {"object", "data"} and listed["object"] == "list"
    for entry_ in listed["data"]:
        check_model(entry_)
        assert http.client.get(f"/v1/models/{entry_['id']}").json == entry_


def test_oai_1_a_json_object_may_have_a_schema(http: HttpServed) -> None:
    fields = {"messages": [{"role": "user", "content": "Write an example"}], "max_tokens": 16}
    reply = http.client.post(CHAT, {**fields, "response_format": {"type": "json_object", "schema": {"const": "42"}}})
    assert reply.json["choices"][0]["message"]["content"] == '"42"'


@pytest.mark.long
def test_oai_1_top_k_of_minus_one_keeps_all_tokens(http: HttpServed) -> None:
    # SMG sends -1 on `/v1/responses` if its caller sends no top_k.
    texts = [
        http.chat(temperature=2, seed=7, max_tokens=20, top_k=top_k).json["choices"][0]["message"]["content"]
        for top_k in (-1, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("n", [0, 1, SLICE, 2 * SLICE + 3])
def test_rpc_30_a_long_list_is_written_in_pieces(n: int) -> None:
    for values in ([*range(n)], ["\u2028,]"] * n):
        written = JsonList(ReplySize("tokens", ServedModel(read_settings().settings)))
        for piece in sliced(values):
            written.add(piece)
        assert json.loads(written.joined()) == values


STORY = "Once upon a time"


def assert_ids(entries: list[dict[str, Any]], ids: list[int]) -> None:
    """Checks that each entry and each of its candidates has the id of its bytes."""
    assert [each["token_id"] for each in entries] == ids
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3
        for each in (entry, *entry["top_logprobs"]):
            is_hidden = each["token_id"] in vocabulary().special_ids
            assert bytes(each["bytes"]) == (b"" if is_hidden else vocabulary().token_bytes(each["token_id"]))


def test_ply_3_log_probabilities_of_a_chat_name_ids(http: HttpServed) -> None:
    choice = http.chat(STORY, seed=1, max_tokens=8, logprobs=True, top_logprobs=3, return_token_ids=True).choice
    assert_ids(choice["logprobs"]["content"], choice["token_ids"])


@pytest.mark.parametrize("echo", [False, True])
def test_ply_3_log_probabilities_of_a_completion_have_the_entries_of_a_chat(http: HttpServed, echo: bool) -> None:
    reply = http.complete(STORY, seed=1, max_tokens=8, logprobs=3, return_token_ids=True, echo=echo).choice
    found = reply["logprobs"]["content"]
    assert [each["token"] for each in found] == reply["logprobs"]["tokens"]
    if echo:
        n = len(reply["prompt_token_ids"])
        assert [each["token_id"] for each in found[:n]] == reply["prompt_token_ids"]
        found = found[n:]
    assert_ids(found, reply["token_ids"])
    assert [each["logprob"] for each in found] == reply["logprobs"]["token_logprobs"][-len(found) :]


def test_ply_3_a_stream_has_the_same_entries(http: HttpServed) -> None:
    fields = {"prompt": STORY, "seed": 1, "max_tokens": 8, "logprobs": 3, "return_token_ids": True}
    whole = http.client.post("/v1/completions", fields).choice["logprobs"]["content"]
    events = http.client.stream("/v1/completions", fields | {"max_chunk_tokens": 3})
    parts = [each["choices"][0]["logprobs"] for each in events.objects if each["choices"]]
    assert [entry for part in parts if part for entry in part["content"]] == whole


@pytest.mark.long
def test_ply_3_without_the_wish_nothing_is_added(http: HttpServed) -> None:
    chat = http.chat(STORY, max_tokens=2, logprobs=True, top_logprobs=3).choice["logprobs"]["content"]
    assert all("token_id" not in each for entry in chat for each in (entry, *entry["top_logprobs"]))
    assert "content" not in http.complete(STORY, max_tokens=2, logprobs=3).choice["logprobs"]
