"""Wrong requests for decisions, each with its error, over gRPC, over HTTP and in the library; nothing runs for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from imp_service import Error, LanguageModel
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.servers.http_served import HttpServed, serve_http

TWO = ["a", "b"]
LONG = "x" * 1025
# Labels or a range of the library -> the paths that are wrong.
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["labels"]),
    ({"labels": ["a"]}, ["labels"]),
    ({"labels": [str(i) for i in range(1025)]}, ["labels"]),
    ({"labels": ["", "b"]}, ["labels[0]"]),
    ({"labels": ["a", LONG]}, ["labels[1]"]),
    ({"labels": [f"{i:03}" + "y" * 1000 for i in range(70)]}, ["labels"]),
    ({"labels": ["a", "b", "a", "b"]}, ["labels[2]", "labels[3]"]),
    ({"labels": TWO, "range": (0, 3)}, ["labels"]),
    ({"range": (3, 3)}, ["range"]),
    ({"range": (3, 1)}, ["range"]),
    ({"range": (0, 1024)}, ["range"]),
    ({"range": (0, 9, 10)}, ["range"]),
    ({"range": (0, 9, 0)}, ["range.step"]),
    ({"range": (0, 9, -1)}, ["range.step"]),
    ({"range": (-(10**9) - 1, 0, 10**8)}, ["range.low"]),
    ({"range": (0, 10**9 + 1, 10**7)}, ["range.high"]),
    ({"labels": TWO, "cache_salt": "s" * 65}, ["cache.salt"]),
]
CHOICES = [{"value": "a"}, {"value": "b"}]
PREDICATE = {"type": "predicate", "instructions": "Is it?"}


def choice(*options: Any) -> dict[str, Any]:
    return {"questions": [{"type": "choice", "instructions": "Which?", "choices": list(options)}]}


def score(*levels: Any) -> dict[str, Any]:
    return {"questions": [{"type": "score", "instructions": "How much?", "levels": list(levels)}]}


# Fields of /v1/decisions -> the field that is wrong.
WRONG_BODIES: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": 7}, "input"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "cook", "content": "x"}]}, "input[0].role"),
    ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"}]}, "input[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_json", "data": [1]}]}]},
        "input[0].content[0].data",
    ),
    ({"questions": None}, "questions"),
    ({"questions": []}, "questions"),
    ({"questions": {}}, "questions"),
    ({"questions": [PREDICATE] * 401}, "questions"),
    ({"questions": ["is it?"]}, "questions[0]"),
    ({"questions": [{"type": "noul", "instructions": "x"}]}, "questions[0].type"),
    ({"questions": [PREDICATE, {"type": "predicate"}]}, "questions[1].instructions"),
    ({"questions": [{**PREDICATE, "instructions": " \n"}]}, "questions[0].instructions"),
    ({"questions": [{**PREDICATE, "instructions": 7}]}, "questions[0].instructions"),
    ({"questions": [{**PREDICATE, "name": 7}]}, "questions[0].name"),
    ({"questions": [{**PREDICATE, "threshold": 0.5}]}, "questions[0].threshold"),
    ({"questions": [{**PREDICATE, "choices": CHOICES}]}, "questions[0].choices"),
    (
        {"questions": [{**PREDICATE, "instructions": [{"type": "input_image", "image_url": "data:,"}]}]},
        "questions[0].instructions[0]",
    ),
    ({"questions": [{"type": "choice", "instructions": "x"}]}, "questions[0].choices"),
    (choice(), "questions[0].choices"),
    (choice({"value": "a"}), "questions[0].choices"),
    (choice(*({"value": str(i)} for i in range(256))), "questions[0].choices"),
    (choice({"value": "a"}, {"value": "a"}), "questions[0].choices[1].value"),
    (choice({"value": "a"}, {"value": ""}), "questions[0].choices[1].value"),
    (choice({"value": "a"}, {"value": 1}), "questions[0].choices[1].value"),
    (choice({"value": "a"}, {"description": "b"}), "questions[0].choices[1].value"),
    (choice({"value": "a"}, "b"), "questions[0].choices[1]"),
    (choice({"value": "a"}, {"value": "b", "description": 1}), "questions[0].choices[1].description"),
    (score({"label": "a"}), "questions[0].levels"),
    (score({"label": "a"}, {"label": "a"}), "questions[0].levels[1].label"),
    (score({"label": "a"}, {"label": True}), "questions[0].levels[1].label"),
    ({"temperature": 0.5}, "temperature"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"top_p": 0.9}, "top_p"),
    ({"seed": 3}, "seed"),
    ({"stream": True}, "stream"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"instructions": "Be brief."}, "instructions"),
    ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
    ({"state": "x"}, "state"),
    ({"cache_salt": "s" * 65}, "cache_salt"),
    ({"priority": 101}, "priority"),
    ({"nosuch": 1}, "nosuch"),
]


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http() as it:
        yield it


def request_of(labels: Any = (), range: Any = None, cache_salt: str = "") -> pb.DecideRequest:
    numbers = None if range is None else pb.IntegerRange(**dict(zip(("low", "high", "step"), range, strict=False)))
    cache = types_pb2.CacheOptions(salt=cache_salt) if cache_salt else None
    return pb.DecideRequest(text="x", labels=labels, range=numbers, cache=cache)


@pytest.mark.parametrize(("wrong", "paths"), WRONG, ids=str)
def test_dec_7_grpc_and_the_library_refuse_the_same(
    http: HttpServed, library: LanguageModel, wrong: dict[str, Any], paths: list[str]
) -> None:
    n_steps = http.served.stats().n_steps
    refusal = failed(lambda: http.served.inference.Decide(request_of(**wrong)))
    assert (refusal.code, refusal.reason, refusal.paths) == ("INVALID_ARGUMENT", "FIELD_INVALID", paths)
    with pytest.raises(Error) as raised:
        library.decide("x", **wrong)
    assert (raised.value.reason, raised.value.field) == ("FIELD_INVALID", paths[0])
    assert http.served.stats().n_steps == n_steps


@pytest.mark.parametrize(("wrong", "path"), WRONG_BODIES, ids=str)
def test_dec_7_http_names_the_field(http: HttpServed, wrong: dict[str, Any], path: str) -> None:
    n_steps = http.served.stats().n_steps
    reply = http.client.post("/v1/decisions", {"input": "x", "questions": [PREDICATE], **wrong})
    assert (reply.status, reply.error["param"]) == (400, path)
    assert http.served.stats().n_steps == n_steps


def test_dec_7_prompts_are_checked_as_those_of_generations(http: HttpServed, library: LanguageModel) -> None:
    stub = http.served.inference
    cases = [
        (pb.DecideRequest(labels=TWO), "prompt"),
        (pb.DecideRequest(labels=TWO, text=""), "text"),
        (pb.DecideRequest(labels=TWO, token_ids=types_pb2.TokenIds(ids=[5, 2**31])), "token_ids.ids[1]"),
        (pb.DecideRequest(labels=TWO, chat=types_pb2.ChatPrompt()), "chat.messages"),
        (pb.DecideRequest(labels=TWO, text="x", request_id="a b"), "request_id"),
    ]
    for request, path in cases:
        assert failed(lambda request=request: stub.Decide(request)).paths == [path]
    for request, reason in [
        (pb.DecideRequest(labels=TWO, text="x", model="nosuch"), "MODEL_NOT_SERVED"),
        (pb.DecideRequest(labels=TWO, text="word " * 600), "CONTEXT_TOO_LONG"),
    ]:
        assert failed(lambda request=request: stub.Decide(request)).reason == reason
    long = http.client.post("/v1/decisions", {"input": "word " * 600, "questions": [PREDICATE]})
    assert long.refusal == (400, "context_length_exceeded", None)
    other = http.client.post("/v1/decisions", {"input": "x", "questions": [PREDICATE], "model": "nosuch"})
    assert (other.status, other.error["code"]) == (404, "model_not_found")


def test_dec_7_the_longest_label_must_fit_the_context(library: LanguageModel) -> None:
    ids = [300] * library.max_context
    assert library.decide(ids, ["a", "b"]).evaluations == 0
    label = "a long label, which has many tokens"
    n_tokens = len(library.tokenize(label, add_special_tokens=False))
    assert library.decide(ids[: library.max_context - n_tokens + 1], [label, "b"]).evaluations == n_tokens - 1
    with pytest.raises(Error, match="CONTEXT_TOO_LONG"):
        library.decide(ids[: library.max_context - n_tokens + 2], [label, "b"])


def test_dec_7_too_many_beginnings_are_refused(library: LanguageModel) -> None:
    labels = [f"{i}" + "".join(chr(ord("a") + (i * j) % 26) for j in range(300)) for i in range(60)]
    with pytest.raises(Error, match=r"beginnings of labels to evaluate, expected at most 4096"):
        library.decide("x", labels)
