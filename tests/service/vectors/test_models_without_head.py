"""A server whose model generates no text: it embeds, refuses what generates by name, and works as any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc, types_pb2
from support.calls.failed_calls import failed
from support.models.worded_encoders import write_encoder
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import from_file
from support.servers.vector_served import bytes_of, embed

TEXTS = ("Hello", "the weather in the north", "a toaster", "It is cold.")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    folder = write_encoder(tmp_path_factory.mktemp("encoder") / "mean")
    with serve_http(model=from_file(folder)) as served:
        yield served


GENERATES: dict[str, Callable[[Any], Any]] = {
    "Generate": lambda stub: list(stub.Generate(pb.GenerateRequest(text="a"))),
    "GenerateUnary": lambda stub: stub.GenerateUnary(pb.GenerateUnaryRequest(request=pb.GenerateRequest(text="a"))),
    "Prefill": lambda stub: stub.Prefill(pb.PrefillRequest(text="a")),
    "DecodeStep": lambda stub: stub.DecodeStep(pb.DecodeStepRequest(steps=[pb.SessionStep(session_id="s")])),
    "ForkSession": lambda stub: stub.ForkSession(pb.ForkSessionRequest(session_id="s")),
    "TruncateSession": lambda stub: stub.TruncateSession(pb.TruncateSessionRequest(session_id="s")),
}


@pytest.mark.parametrize("method", GENERATES)
def test_emb_7_a_method_that_generates_says_what_the_model_is(http: HttpServed, method: str) -> None:
    failure = failed(lambda: GENERATES[method](http.served.inference))
    assert (failure.code, failure.reason) == ("UNIMPLEMENTED", "NOT_SUPPORTED_BY_MODEL")
    assert failure.metadata == {"feature": "generation"}
    assert "embedding model" in failure.message


BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
}


@pytest.mark.parametrize("path", BODIES)
def test_emb_7_a_path_that_generates_says_what_the_model_is(http: HttpServed, path: str) -> None:
    reply = http.client.post(path, BODIES[path])
    assert (reply.status, reply.error["code"]) == (400, "not_supported_by_model")
    assert "embedding model" in reply.error["message"]


def test_emb_7_everything_else_works(http: HttpServed) -> None:
    served, channel = http.served, http.served.channel()
    info = model_pb2_grpc.ModelServiceStub(channel).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert (info.supports_embeddings, info.supports_logits, list(info.constraints)) == (True, False, [])
    assert info.embeddings.dimensions == len(embed(served, ["a"]).embeddings[0].values)
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    models = http.client.get("/v1/models").json["data"][0]
    assert models["output_modalities"] == ["embeddings"]
    assert [http.client.get(path).status for path in ("/health", "/metrics", "/load", "/version")] == [200] * 4
    ids = http.client.post("/tokenize", {"prompt": "a toaster"}).json["tokens"]
    assert http.client.post("/detokenize", {"tokens": ids}).status == 200
    by_ids = served.inference.Embed(pb.EmbedRequest(token_ids=[types_pb2.TokenIds(ids=ids)]))
    assert bytes_of(by_ids) == bytes_of(embed(served, ["a toaster"]))
    load = model_pb2_grpc.ModelServiceStub(channel).GetLoad(model_pb2.GetLoadRequest()).load
    assert (load.running, load.waiting) == (0, 0)


def test_emb_2_the_vectors_of_a_whole_text_model_are_equal_at_every_door(http: HttpServed) -> None:
    many = [f"{text} {i}" for i in range(40) for text in TEXTS]
    expected = bytes_of(embed(http.served, many))
    alone = [bytes_of(embed(http.served, [text]))[0] for text in many[:12]]
    assert alone == expected[:12]
    assert bytes_of(embed(http.served, many[::-1])) == expected[::-1]
    assert len(set(expected)) == len(many)


def test_emb_9_a_classifier_ranks_at_the_doors(tmp_path: Path) -> None:
    with serve_http(model=from_file(write_encoder(tmp_path / "rank", "rank"))) as ranker:
        body = {"query": "where is it cold", "documents": list(TEXTS)}
        results = ranker.client.post("/v1/rerank", body).json["results"]
        reply = ranker.served.inference.Rerank(pb.RerankRequest(**body))
        assert [(each["index"], pytest.approx(each["relevance_score"])) for each in results] == [
            (each.index, each.score) for each in reply.results
        ]
        failure = failed(lambda: embed(ranker.served, ["a"]))
        assert (failure.reason, failure.metadata) == ("NOT_SUPPORTED_BY_MODEL", {"feature": "embeddings"})
        assert ranker.client.get("/v1/models").json["data"][0]["output_modalities"] == ["scores"]
        with pytest.raises(grpc.RpcError):
            list(ranker.served.inference.Generate(pb.GenerateRequest(text="a")))
