"""The clients of LangChain, LlamaIndex, Haystack and Cohere get vectors and rankings from imp (EMB-9)."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from support.models.tiny_judge import write_judge
from support.servers.client_served import serve_for_clients
from support.servers.http_served import HttpServed
from support.servers.served_models import from_file
from support.servers.vector_served import POOLED, TEXTS, bytes_of, embed

pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed here: pip install '.[clients]'")
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
import cohere
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPITextEmbedder
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from langchain_cohere import CohereRerank
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

# Warnings of the clients about themselves.
pytestmark = pytest.mark.filterwarnings("default")
QUERY = "capital of France"
DOCUMENTS = ("Paris is a city.", "A toaster", "yes", "Berlin, and much more than that.")
KEY = "any"


@pytest.fixture(scope="module")
def pooled() -> Iterator[HttpServed]:
    with serve_for_clients(POOLED) as served:
        yield served


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """The clients leave connections to the garbage collector, which warns of them: here, and not in another test."""
    yield
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    path = write_judge(tmp_path_factory.mktemp("judge") / "judge.gguf")
    with serve_for_clients("model.overrides.pooling=yes_no", model=from_file(path)) as served:
        yield served


def root_of(http: HttpServed) -> str:
    return http.url.removesuffix("/v1")


def as_bytes(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    return [np.array(each, np.float32).tobytes() for each in vectors]


def best_two(http: HttpServed) -> list[tuple[int, float]]:
    """Returns the server's own answer."""
    body = {"query": QUERY, "documents": list(DOCUMENTS), "top_n": 2}
    results = http.client.post("/v2/rerank", body).json["results"]
    return [(each["index"], each["relevance_score"]) for each in results]


def embedded_by(name: str, http: HttpServed) -> Any:
    """Returns a function from texts to vectors."""
    model, root = http.served.state.model.name, root_of(http)
    match name:
        case "langchain":
            # Otherwise the client sends tokens of OpenAI's own vocabulary.
            options: Any = {"base_url": http.url, "api_key": KEY, "check_embedding_ctx_length": False}
            return OpenAIEmbeddings(model=model, **options).embed_documents
        case "llama index, OpenAI":
            return OpenAILikeEmbedding(model_name=model, api_base=http.url, api_key=KEY).get_text_embedding_batch
        case "llama index, TEI":
            return TextEmbeddingsInference(model_name=model, base_url=root).get_text_embedding_batch
        case "haystack, OpenAI":
            embedder = OpenAITextEmbedder(api_base_url=http.url, api_key=Secret.from_token(KEY), model=model)
            return lambda texts: [embedder.run(text)["embedding"] for text in texts]
        case "haystack, TEI":
            where = {"url": f"{root}/embed"}
            # Without `normalize` the client asks for vectors of any length.
            tei = HuggingFaceAPITextEmbedder(
                api_type="text_embeddings_inference", api_params=where, normalize=True, truncate=True
            )
            return lambda texts: [tei.run(text)["embedding"] for text in texts]
    documents = OpenAIDocumentEmbedder(api_base_url=http.url, api_key=Secret.from_token(KEY), model=model)

    def run(texts: Sequence[str]) -> list[Any]:
        return [each.embedding for each in documents.run([Document(content=text) for text in texts])["documents"]]

    return run


EMBEDDERS = (
    "langchain",
    "llama index, OpenAI",
    "llama index, TEI",
    "haystack, OpenAI",
    "haystack, TEI",
    "haystack, documents",
)


@pytest.mark.parametrize("name", EMBEDDERS)
def test_emb_9_a_frameworks_client_gets_the_bytes_of_grpc(name: str, pooled: HttpServed) -> None:
    found = embedded_by(name, pooled)(list(TEXTS))
    assert as_bytes(found) == bytes_of(embed(pooled.served, TEXTS))


def test_emb_9_coheres_client_ranks_in_both_versions(judge: HttpServed) -> None:
    model, options = judge.served.state.model.name, {"api_key": KEY, "base_url": root_of(judge)}
    asked: Any = {"model": model, "query": QUERY, "documents": list(DOCUMENTS), "top_n": 2}
    second = cohere.ClientV2(**options).rerank(**asked)
    first = cohere.Client(**options).rerank(**asked, return_documents=True)
    for reply in (second, first):
        assert [(each.index, each.relevance_score) for each in reply.results] == best_two(judge)
    assert [each.document.text for each in first.results] == [DOCUMENTS[i] for i, _ in best_two(judge)]
    langchain = CohereRerank(cohere_api_key=KEY, base_url=root_of(judge), model=model, top_n=2)
    ranked = langchain.rerank(list(DOCUMENTS), QUERY)
    assert [(each["index"], each["relevance_score"]) for each in ranked] == best_two(judge)
    with pytest.raises(cohere.core.ApiError) as raised:
        cohere.ClientV2(**options).rerank(**{**asked, "documents": ["a", ""]})
    assert (raised.value.status_code, raised.value.body["error"]["param"]) == (400, "documents[1]")


def test_emb_9_the_rankers_of_the_frameworks_give_the_same_order(judge: HttpServed) -> None:
    expected = [(DOCUMENTS[i], score) for i, score in best_two(judge)]
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in DOCUMENTS]
    found = TextEmbeddingInference(base_url=root_of(judge), top_n=2).postprocess_nodes(nodes, query_str=QUERY)
    assert [(each.node.get_content(), each.score) for each in found] == expected
    documents, root = [Document(content=text) for text in DOCUMENTS], root_of(judge)
    tei = HuggingFaceTEIRanker(url=root, top_k=2)
    like_cohere = CohereRanker(
        model=judge.served.state.model.name, api_key=Secret.from_token(KEY), api_base_url=root, top_k=2
    )
    for ranker in (tei, like_cohere):
        ranked = ranker.run(query=QUERY, documents=documents)["documents"]
        assert [(each.content, each.score) for each in ranked] == expected
