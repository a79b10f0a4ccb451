"""Rerank over gRPC and HTTP: one order and one score at every door, in the forms of Cohere, Jina, TEI and vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import imp_service
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc
from support.calls.failed_calls import failed
from support.models.tiny_judge import write_judge
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import from_file

JUDGES = "model.overrides.pooling=yes_no"
QUERY = "capital of France"
DOCUMENTS = ("Paris is a city.", "A toaster", "yes", "Berlin, and much more than that.", "A toaster")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    path = write_judge(tmp_path_factory.mktemp("judge") / "judge.gguf")
    with serve_http(JUDGES, model=from_file(path)) as served:
        yield served


def ranked(http: HttpServed, **options: Any) -> pb.RerankResponse:
    request = pb.RerankRequest(query=QUERY, documents=DOCUMENTS, **options)
    return http.served.inference.Rerank(request)


def results_of(reply: pb.RerankResponse) -> list[tuple[int, float]]:
    return [(each.index, each.score) for each in reply.results]


def answered(http: HttpServed, path: str, **body: Any) -> Any:
    reply = http.client.post(path, body)
    assert reply.status == 200, reply.json
    return reply.json


def as_float32(value: float) -> float:
    return float(np.float32(value))


def test_emb_9_the_best_document_comes_first_and_ties_keep_their_order(http: HttpServed) -> None:
    results = results_of(ranked(http))
    assert sorted(index for index, _ in results) == [0, 1, 2, 3, 4]
    assert results == sorted(results, key=lambda each: (-each[1], each[0]))
    scores = dict(results)
    assert scores[1] == scores[4], "equal documents have equal scores"
    assert all(0 < score < 1 for score in scores.values())
    assert results_of(ranked(http, top_n=2)) == results[:2]
    assert results_of(ranked(http, top_n=99)) == results
    raw = dict(results_of(ranked(http, raw_scores=True)))
    assert sorted(raw, key=lambda i: (-raw[i], i)) == [index for index, _ in results]
    assert raw != scores


def test_emb_9_every_door_and_the_library_give_equal_scores(http: HttpServed) -> None:
    expected = results_of(ranked(http))
    body = {"query": QUERY, "documents": list(DOCUMENTS)}
    for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
        found = answered(http, path, **body)["results"]
        assert [(each["index"], as_float32(each["relevance_score"])) for each in found] == expected
    tei = answered(http, "/rerank", query=QUERY, texts=list(DOCUMENTS))
    assert [(each["index"], as_float32(each["score"])) for each in tei] == expected
    by_pairs = answered(http, "/v1/score", text_1=QUERY, text_2=list(DOCUMENTS))["data"]
    assert [as_float32(each["score"]) for each in by_pairs] == [dict(expected)[i] for i in range(len(DOCUMENTS))]
    with imp_service.connect(http.served.address) as client:
        assert [(each.index, each.score) for each in client.rerank(QUERY, DOCUMENTS)] == expected
    path = http.served.state.config.settings.model.path
    with imp_service.load(path, JUDGES) as model:
        assert [(each.index, each.score) for each in model.rerank(QUERY, DOCUMENTS)] == expected


def test_emb_9_answers_have_the_forms_of_other_servers(http: HttpServed) -> None:
    usage = ranked(http).usage.prompt_tokens
    body = {"query": QUERY, "documents": [{"text": each} for each in DOCUMENTS], "top_n": 1}
    best = results_of(ranked(http))[0][0]
    answer = answered(http, "/v1/rerank", **body)
    assert answer["results"][0]["document"] == {"text": DOCUMENTS[best]}
    assert answer["usage"] == {"prompt_tokens": usage, "total_tokens": usage}
    assert answer["meta"] == {"tokens": {"input_tokens": usage}}
    assert "document" not in answered(http, "/v2/rerank", **body)["results"][0]
    assert "document" in answered(http, "/v2/rerank", **body, return_documents=True)["results"][0]
    tei = answered(http, "/rerank", query=QUERY, texts=list(DOCUMENTS), return_text=True)
    assert tei[0].keys() == {"index", "score", "text"}
    score = answered(http, "/score", text_1=["a", "b"], text_2=["b", "c"])
    assert [(each["index"], each["object"]) for each in score["data"]] == [(0, "score"), (1, "score")]
    assert score["object"] == "list"


def test_emb_9_vllms_and_teis_words_for_the_models_own_numbers(http: HttpServed) -> None:
    expected = dict(results_of(ranked(http, raw_scores=True)))
    for fields in ({"raw_scores": True}, {"use_activation": False}):
        tei = answered(http, "/rerank", query=QUERY, texts=list(DOCUMENTS), **fields)
        assert {each["index"]: as_float32(each["score"]) for each in tei} == expected


def test_emb_11_the_document_is_cut_and_the_query_is_not(http: HttpServed) -> None:
    long = "word " * 3000
    request = pb.RerankRequest(query=QUERY, documents=["a", long])
    failure = failed(lambda: http.served.inference.Rerank(request))
    assert (failure.reason, failure.metadata["index"]) == ("CONTEXT_TOO_LONG", "1")
    assert failure.message.startswith("documents[1]: ")
    request.truncate = pb.TRUNCATION_END
    assert list(http.served.inference.Rerank(request).truncated) == [1]
    request.query, request.documents[1] = long, "a"
    assert failed(lambda: http.served.inference.Rerank(request)).reason == "CONTEXT_TOO_LONG"
    answer = answered(http, "/v1/rerank", query=QUERY, documents=[long, "a"], max_tokens_per_doc=10)
    assert answer["truncated"] == [0]


BAD: list[tuple[str, dict[str, Any], list[str]]] = [
    ("/v1/rerank", {}, ["query", "documents"]),
    ("/v1/rerank", {"query": "", "documents": ["a", ""]}, ["query", "documents[1]"]),
    ("/v1/rerank", {"query": "a", "documents": []}, ["documents"]),
    ("/v1/rerank", {"query": "a", "documents": ["a", {"title": "b"}]}, ["documents[1].title"]),
    ("/v1/rerank", {"query": "a", "documents": ["a", 3]}, ["documents[1]"]),
    ("/v1/rerank", {"query": "a", "documents": ["a"] * 2049}, ["documents"]),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, ["top_n"]),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "max_chunks_per_doc": 2}, ["max_chunks_per_doc"]),
    ("/rerank", {"query": "a", "texts": ["b", ""]}, ["texts[1]"]),
    ("/v1/score", {"text_1": "a"}, ["text_2"]),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["b", "c", "d"]}, ["text_2"]),
    ("/v1/score", {"queries": ["a", ""], "documents": ["b", "c"]}, ["queries[1]"]),
]


@pytest.mark.parametrize(
    ("path", "body", "paths"), BAD, ids=lambda each: "-".join(each) if isinstance(each, list) else ""
)
def test_emb_4_every_bad_ranking_is_named_in_the_callers_words(
    http: HttpServed, path: str, body: dict[str, Any], paths: list[str]
) -> None:
    reply = http.client.post(path, body)
    assert (reply.status, reply.error["param"]) == (400, paths[0])
    assert [each.partition(": ")[0] for each in reply.error["message"].split("; ")] == paths


def test_emb_9_a_model_that_only_ranks_says_so(http: HttpServed) -> None:
    info = model_pb2_grpc.ModelServiceStub(http.served.channel()).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert not info.supports_embeddings
    assert (info.embeddings.pooling, info.embeddings.reranks, info.embeddings.dimensions) == ("yes_no", True, 0)
    reply = http.client.post("/v1/embeddings", {"input": "a"})
    assert (reply.status, reply.error["code"]) == (400, "not_supported_by_model")
    assert http.client.get("/v1/models").json["data"][0]["output_modalities"] == ["text", "scores"]
