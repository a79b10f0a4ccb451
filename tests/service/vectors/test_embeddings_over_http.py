"""`/v1/embeddings` and `/embed`: the same vectors as over gRPC, the fields of other servers, and every bad input."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

import imp_service
from imp_service.models import demo_model_path
from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.servers.vector_served import POOLED, TEXTS, bytes_of, embed

EMBEDDINGS = "/v1/embeddings"
# As many as fill several steps.
MANY = [f"{text} {i}" for i in range(51) for text in TEXTS]


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http(POOLED) as served:
        yield served


def asked(http: HttpServed, **body: Any) -> Any:
    reply = http.client.post(EMBEDDINGS, body)
    assert reply.status == 200, reply.json
    return reply.json


def floats_of(answer: Any) -> list[bytes]:
    """Returns the bytes of vectors in decimals. 32-bit floats that were written exactly are read exactly."""
    return [np.array(each["embedding"], np.float32).tobytes() for each in answer["data"]]


def base64_of(answer: Any) -> list[bytes]:
    return [b64decode(each["embedding"]) for each in answer["data"]]


def test_emb_2_emb_9_every_door_and_the_library_give_equal_bytes(http: HttpServed) -> None:
    expected = bytes_of(embed(http.served, MANY))
    assert len(set(expected)) == len(MANY)
    assert floats_of(asked(http, input=MANY)) == expected
    assert base64_of(asked(http, input=MANY, encoding_format="base64")) == expected
    tei = http.client.post("/embed", {"inputs": MANY}).json
    assert [np.array(each, np.float32).tobytes() for each in tei] == expected
    with imp_service.load(demo_model_path(), POOLED) as model:
        assert [bytes(each) for each in model.embed(MANY)] == expected
    with imp_service.connect(http.served.address) as client:
        assert [bytes(each) for each in client.embed(MANY)] == expected


def test_emb_2_a_vector_depends_on_its_text_alone(http: HttpServed) -> None:
    whole = dict(zip(MANY, bytes_of(embed(http.served, MANY)), strict=True))
    draw = random.Random(1)
    for _ in range(4):
        some = draw.sample(MANY, 60)
        assert bytes_of(embed(http.served, some)) == [whole[text] for text in some]
    for text in TEXTS:
        alone = asked(http, input=f"{text} 7", encoding_format="base64")
        assert base64_of(alone) == [whole[f"{text} 7"]]


def test_emb_9_an_answer_has_openais_form(http: HttpServed) -> None:
    answer = asked(http, input=["Hello", "Good morning"], model=DEMO_MODEL, user="me")
    usage = embed(http.served, ["Hello", "Good morning"]).usage.prompt_tokens
    assert {**answer, "data": []} == {
        "object": "list",
        "data": [],
        "model": DEMO_MODEL,
        "usage": {"prompt_tokens": usage, "total_tokens": usage},
    }
    assert [(each["object"], each["index"]) for each in answer["data"]] == [("embedding", 0), ("embedding", 1)]


@pytest.mark.parametrize("how", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}], ids=str)
def test_emb_9_the_official_client_reads_every_encoding(http: HttpServed, how: dict[str, Any]) -> None:
    """Without `encoding_format` it asks for base64, and decodes it."""
    client = openai.OpenAI(base_url=http.url, api_key="any", max_retries=0)
    answer = client.embeddings.create(model="", input=list(TEXTS), **how)
    found: list[Any] = [each.embedding for each in answer.data]
    rows = [b64decode(each) if isinstance(each, str) else np.array(each, np.float32).tobytes() for each in found]
    assert rows == bytes_of(embed(http.served, TEXTS))
    with pytest.raises(openai.BadRequestError) as raised:
        client.embeddings.create(model="", input=["a", ""])
    assert raised.value.param == "input[1]"


def test_emb_9_fields_of_other_servers_mean_the_same(http: HttpServed) -> None:
    long = " ".join(f"word{i}" for i in range(1000))
    few = bytes_of(embed(http.served, [long], truncate="TRUNCATION_END", max_tokens=9))
    start = bytes_of(embed(http.served, [long], truncate="TRUNCATION_START", max_tokens=9))
    whole = bytes_of(embed(http.served, [long], truncate="TRUNCATION_END"))
    answer = asked(http, input=long, truncate_prompt_tokens=9)
    assert (floats_of(answer), answer["truncated"], answer["usage"]["prompt_tokens"]) == (few, [0], 9)
    assert floats_of(asked(http, input=long, truncate_prompt_tokens=9, truncation_side="left")) == start
    for fields in ({"truncate_prompt_tokens": -1}, {"truncate": True}, {"truncate": "END"}):
        assert floats_of(asked(http, input=long, **fields)) == whole
    raw = bytes_of(embed(http.served, ["a"], normalize=False))
    for fields in ({"normalize": False}, {"use_activation": False}):
        assert floats_of(asked(http, input="a", **fields)) == raw
    bare = bytes_of(embed(http.served, ["a"], add_special_tokens=False))
    assert floats_of(asked(http, input="a", add_special_tokens=False)) == bare


def test_emb_9_what_changes_nothing_is_ignored_and_named(http: HttpServed) -> None:
    reply = http.client.post(EMBEDDINGS, {"input": "a", "input_type": "query", "truncation_side": "left"})
    assert reply.status == 200
    assert json.loads(f"[{reply.headers['imp-ignored']}]") == ["input_type", "truncation_side"]
    reply = http.client.post(EMBEDDINGS, {"input": "a", "dimensions": 5})
    assert "dimensions=5" in reply.headers["imp-approximations"].split(",")


IDS = [[1, 2], [3]]
BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["input"]),
    ({"input": []}, ["input"]),
    ({"input": ""}, ["input"]),
    ({"input": ["a", ""]}, ["input[1]"]),
    ({"input": ["a", None]}, ["input[1]"]),
    ({"input": 3}, ["input"]),
    ({"input": [*IDS, []]}, ["input[2]"]),
    ({"input": [1, 2048]}, ["input[1]"]),
    ({"input": [[1], [1, 2048]]}, ["input[1][1]"]),
    ({"input": ["a"] * 2049}, ["input"]),
    ({"input": "a", "dimensions": 0}, ["dimensions"]),
    ({"input": "a", "dimensions": 100_000}, ["dimensions"]),
    ({"input": "a", "encoding_format": "int8"}, ["encoding_format"]),
    ({"input": "a", "prompt_name": "nosuch"}, ["prompt_name"]),
    ({"input": "a", "instruction": "find it"}, ["instruction"]),
    ({"input": "a", "truncate": "middle"}, ["truncate"]),
    ({"input": "a", "truncate_prompt_tokens": 0}, ["truncate_prompt_tokens"]),
    ({"input": "a", "truncate_prompt_tokens": 100_000}, ["truncate_prompt_tokens"]),
    ({"input": "a", "priority": 10**6}, ["priority"]),
    ({"input": "a", "nosuch": 1}, ["nosuch"]),
    ({"input": ["", "b"], "dimensions": 0, "user": 3}, ["user", "input[0]", "dimensions"]),
]


@pytest.mark.parametrize(("body", "paths"), BAD, ids=lambda each: "-".join(each) if isinstance(each, list) else "")
def test_emb_4_every_bad_input_is_named_in_the_callers_words(
    http: HttpServed, body: dict[str, Any], paths: list[str]
) -> None:
    reply = http.client.post(EMBEDDINGS, body)
    assert reply.status == 400
    assert reply.error["param"] == paths[0]
    assert [each.partition(": ")[0] for each in reply.error["message"].split("; ")] == paths


def test_emb_4_a_text_that_is_too_long_is_named_too(http: HttpServed) -> None:
    reply = http.client.post(EMBEDDINGS, {"input": ["a", "word " * 3000]})
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    assert "input[1]: " in reply.error["message"]


def test_emb_9_a_model_without_vectors_says_what_to_do() -> None:
    with serve_http() as plain:
        for path, body in (
            (EMBEDDINGS, {"input": "a"}),
            ("/embed", {"inputs": "a"}),
            ("/v1/rerank", {"query": "a", "documents": ["b"]}),
            ("/v1/score", {"text_1": "a", "text_2": "b"}),
        ):
            reply = plain.client.post(path, body)
            assert (reply.status, reply.error["code"]) == (400, "not_supported_by_model")
            assert "model.overrides.pooling" in reply.error["message"]
        outputs = plain.client.get("/v1/models").json["data"][0]["output_modalities"]
        assert outputs == ["text"]
