"""Embed over gRPC: order, usage, options, limits, and every bad input by its path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc, types_pb2
from support.calls.failed_calls import failed
from support.servers.served import Served, serve
from support.servers.vector_served import POOLED, TEXTS, bytes_of, embed, rows_of

# In float32 a length is exact to some units in the last place.
UNIT = 1e-6


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(POOLED) as served:
        yield served


def ids_of(served: Served, text: str) -> list[int]:
    return served.state.model.tokenizer.encode(text)


def test_emb_4_vectors_are_in_the_order_of_their_inputs_and_every_token_is_counted(served: Served) -> None:
    reply = embed(served, TEXTS)
    alone = [bytes_of(embed(served, [text]))[0] for text in TEXTS]
    assert bytes_of(reply) == alone
    assert len(set(alone)) == len(TEXTS)
    assert bytes_of(embed(served, TEXTS[::-1])) == alone[::-1]
    ids = [ids_of(served, text) for text in TEXTS]
    assert reply.usage == types_pb2.Usage(prompt_tokens=sum(map(len, ids)))
    assert list(reply.truncated) == []
    assert bytes_of(embed(served, ids)) == alone


def test_emb_4_a_vector_has_length_one_unless_the_request_says_otherwise(served: Served) -> None:
    unit, raw = rows_of(embed(served, TEXTS)), rows_of(embed(served, TEXTS, normalize=False))
    lengths = np.linalg.norm(raw.astype(np.float64), axis=1)
    assert np.allclose(np.linalg.norm(unit.astype(np.float64), axis=1), 1, atol=UNIT)
    assert np.abs(lengths - 1).min() > 0.1, "a control: the model's own vectors have other lengths"
    assert np.allclose(raw / lengths[:, None], unit, atol=UNIT)


def test_emb_4_dimensions_are_cut_before_the_length_is_set(served: Served) -> None:
    whole = rows_of(embed(served, TEXTS, normalize=False))
    width = whole.shape[1]
    for n in (1, 7, width):
        cut = rows_of(embed(served, TEXTS, dimensions=n, normalize=False))
        assert cut.tobytes() == np.ascontiguousarray(whole[:, :n]).tobytes()
        unit = rows_of(embed(served, TEXTS, dimensions=n)).astype(np.float64)
        assert np.allclose(np.linalg.norm(unit, axis=1), 1, atol=UNIT)
        assert np.allclose(unit, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=UNIT)


def test_emb_4_the_model_says_what_it_makes(served: Served) -> None:
    info = model_pb2_grpc.ModelServiceStub(served.channel()).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert info.supports_embeddings
    width = len(embed(served, ["a"]).embeddings[0].values)
    assert (info.embeddings.dimensions, info.embeddings.pooling) == (width, "mean")
    assert info.embeddings.max_tokens == info.max_context_tokens
    assert (info.embeddings.reranks, info.embeddings.is_matryoshka) == (False, False)


IDS = types_pb2.TokenIds
BAD: list[tuple[pb.EmbedRequest, list[str]]] = [
    (pb.EmbedRequest(), ["texts"]),
    (pb.EmbedRequest(texts=["a"], token_ids=[IDS(ids=[1])]), ["texts"]),
    (pb.EmbedRequest(texts=["a", "", "b", ""]), ["texts[1]", "texts[3]"]),
    (pb.EmbedRequest(texts=["a"] * 2049), ["texts"]),
    (pb.EmbedRequest(token_ids=[IDS(ids=[1])] * 2049), ["token_ids"]),
    (pb.EmbedRequest(token_ids=[IDS(ids=[1]), IDS(ids=[])]), ["token_ids[1].ids"]),
    (pb.EmbedRequest(token_ids=[IDS(ids=[1, 2, 2048, 2**31])]), ["token_ids[0].ids[2]", "token_ids[0].ids[3]"]),
    (pb.EmbedRequest(texts=["a" * (2 * 1024**2)]), ["texts[0]"]),
    (pb.EmbedRequest(texts=["a"], dimensions=0), ["dimensions"]),
    (pb.EmbedRequest(texts=["a"], dimensions=100_000), ["dimensions"]),
    (pb.EmbedRequest(texts=["a"], max_tokens=0), ["max_tokens"]),
    (pb.EmbedRequest(texts=["a"], max_tokens=100_000), ["max_tokens"]),
    (pb.EmbedRequest(texts=["a"], truncate=9), ["truncate"]),  # type: ignore[arg-type]
    (pb.EmbedRequest(texts=["a"], prompt_name="nosuch"), ["prompt_name"]),
    (pb.EmbedRequest(texts=["a"], instruction="find it"), ["instruction"]),
    (pb.EmbedRequest(texts=["", "b"], dimensions=0, prompt_name="x"), ["dimensions", "prompt_name", "texts[0]"]),
]


@pytest.mark.parametrize(("request_", "paths"), BAD, ids=lambda each: "-".join(each) if isinstance(each, list) else "")
def test_emb_4_every_bad_input_is_named(served: Served, request_: pb.EmbedRequest, paths: list[str]) -> None:
    failure = failed(lambda: served.inference.Embed(request_))
    assert (failure.code, failure.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert sorted(failure.paths) == sorted(paths)


def test_emb_4_an_input_that_is_too_long_is_refused_with_its_index(served: Served) -> None:
    long = "word " * 3000
    n_tokens = len(ids_of(served, long))
    failure = failed(lambda: embed(served, ["a", long]))
    assert (failure.code, failure.reason) == ("OUT_OF_RANGE", "CONTEXT_TOO_LONG")
    assert failure.metadata == {"index": "1", "prompt_tokens": str(n_tokens), "max_context_tokens": "512"}
    assert failure.message.startswith("texts[1]: ")


def test_emb_11_what_is_too_long_is_cut_where_the_request_says(served: Served) -> None:
    long = " ".join(f"word{i}" for i in range(1000))
    ids = ids_of(served, long)
    end = embed(served, ["a", long], truncate="TRUNCATION_END")
    start = embed(served, ["a", long], truncate="TRUNCATION_START")
    assert list(end.truncated) == list(start.truncated) == [1]
    assert end.usage.prompt_tokens == len(ids_of(served, "a")) + 512
    assert bytes_of(end) == bytes_of(embed(served, [ids_of(served, "a"), ids[:512]]))
    assert bytes_of(start) == bytes_of(embed(served, [ids_of(served, "a"), ids[-512:]]))
    few = embed(served, [long], truncate="TRUNCATION_END", max_tokens=9)
    assert bytes_of(few) == bytes_of(embed(served, [ids[:9]]))
    refused = failed(lambda: embed(served, [long], truncate="TRUNCATION_NONE"))
    assert refused.reason == "CONTEXT_TOO_LONG"


def test_emb_11_the_setting_decides_where_the_request_does_not(served: Served) -> None:
    with serve(POOLED, "limits.truncate=end", "limits.max_inputs=2") as cutting:
        long = "word " * 3000
        assert list(embed(cutting, [long]).truncated) == [0]
        assert failed(lambda: embed(cutting, [long], truncate="TRUNCATION_NONE")).reason == "CONTEXT_TOO_LONG"
        assert failed(lambda: embed(cutting, ["a"] * 3)).paths == ["texts"]


def test_emb_4_rpc_35_a_reply_that_is_too_large_is_refused_before_any_work() -> None:
    with serve(POOLED, "limits.max_message_bytes=64KiB") as small:
        n_steps = small.stats().n_steps
        failure = failed(lambda: embed(small, ["a"] * 2000))
        assert (failure.reason, failure.paths) == ("FIELD_INVALID", ["texts"])
        assert "limits.max_message_bytes" in failure.message
        assert small.stats().n_steps == n_steps
        assert len(embed(small, ["a"] * 2000, dimensions=1).embeddings) == 2000


def test_emb_4_a_model_without_pooling_says_what_to_do() -> None:
    with serve() as plain:
        failure = failed(lambda: embed(plain, ["a"]))
        assert (failure.code, failure.reason) == ("UNIMPLEMENTED", "NOT_SUPPORTED_BY_MODEL")
        assert failure.metadata == {"feature": "embeddings"}
        assert "model.overrides.pooling" in failure.message
        failure = failed(lambda: plain.inference.Rerank(pb.RerankRequest(query="a", documents=["b"])))
        assert (failure.reason, failure.metadata) == ("NOT_SUPPORTED_BY_MODEL", {"feature": "rerank"})


def test_emb_9_shorter_vectors_of_a_model_that_is_not_made_for_it_are_an_approximation(served: Served) -> None:
    def approximations(**options: Any) -> str:
        _, call = served.inference.Embed.with_call(pb.EmbedRequest(texts=["a"], **options))
        return str(dict(call.initial_metadata()).get("imp-approximations", ""))

    assert approximations() == ""
    assert "dimensions=5" in approximations(dimensions=5).split(",")
