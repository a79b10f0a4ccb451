"""Both kinds of client get the vectors and the order of gRPC, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

import imp_service
from imp_service.api.reports import EmbeddingSupport
from support.models.tiny_judge import write_judge
from support.servers.served import Served, serve
from support.servers.served_models import from_file
from support.servers.vector_served import POOLED, TEXTS, bytes_of, embed, rows_of

DOCUMENTS = ("Paris is a city.", "A toaster", "yes")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(POOLED) as served:
        yield served


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = write_judge(tmp_path_factory.mktemp("judge") / "judge.gguf")
    with serve("model.overrides.pooling=yes_no", model=from_file(path)) as served:
        yield served


def test_emb_9_a_client_has_the_options_and_the_errors_of_the_library(served: Served) -> None:
    expected = embed(served, TEXTS, dimensions=7, normalize=False)
    with imp_service.connect(served.address) as client:
        vectors = client.embed(TEXTS, dimensions=7, normalize=False)
        assert [bytes(each) for each in vectors] == bytes_of(expected)
        assert (vectors.prompt_tokens, list(vectors.truncated)) == (expected.usage.prompt_tokens, [])
        assert np.asarray(vectors).tobytes() == rows_of(expected).tobytes()
        assert [bytes(each) for each in client.embed([[1, 2], [3]])] == bytes_of(embed(served, [[1, 2], [3]]))
        width = len(embed(served, ["a"]).embeddings[0].values)
        assert client.info().embeddings == EmbeddingSupport(width, "mean", client.max_context, [])
        with pytest.raises(imp_service.InvalidArgument) as raised:
            client.embed(["a", ""], dimensions=0)
        assert raised.value.field == "texts[1]"
        with pytest.raises(imp_service.Error) as refused:
            client.rerank("a", DOCUMENTS)
        assert refused.value.reason == "NOT_SUPPORTED_BY_MODEL"
        with pytest.raises(TypeError, match="dimension"):
            client.embed(TEXTS, dimension=7)


def test_emb_9_an_asynchronous_client_has_both_methods(served: Served, judge: Served) -> None:
    async def ask() -> tuple[list[bytes], list[tuple[int, float]]]:
        async with imp_service.connect_async(served.address) as client:
            vectors = await client.embed(TEXTS)
        async with imp_service.connect_async(judge.address) as client:
            ranking = await client.rerank("capital of France", DOCUMENTS, top_n=2)
        return [bytes(each) for each in vectors], [(each.index, each.score) for each in ranking]

    vectors, ranking = asyncio.run(ask())
    assert vectors == bytes_of(embed(served, TEXTS))
    with imp_service.connect(judge.address) as client:
        assert ranking == [(each.index, each.score) for each in client.rerank("capital of France", DOCUMENTS)][:2]
