"""imp call embed and imp call rerank print what the server answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import imp_service
from support.models.tiny_judge import write_judge
from support.servers.served import Served, serve
from support.servers.served_models import from_file
from support.servers.vector_served import POOLED, TEXTS, embed, rows_of

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


def test_emb_9_imp_call_prints_vectors_and_writes_their_bits(call, served: Served, tmp_path: Path) -> None:
    expected = rows_of(embed(served, TEXTS))
    status, out, _ = call("call", "embed", "--target", served.address, *TEXTS)
    assert status == 0
    assert np.array([line.split() for line in out.splitlines()], np.float32).tobytes() == expected.tobytes()
    path = tmp_path / "vectors.npy"
    assert call("call", "embed", "--target", served.address, "--npy", str(path), *TEXTS)[0] == 0
    assert np.load(path).tobytes() == expected.tobytes()
    out = call("call", "embed", "--target", served.address, "--json", "Hello")[1]
    assert len(json.loads(out)["embeddings"][0]["values"]) == expected.shape[1]


def test_emb_9_imp_call_prints_a_ranking(call, judge: Served, tmp_path: Path) -> None:
    path = tmp_path / "documents.txt"
    path.write_text("\n".join(DOCUMENTS))
    status, out, _ = call("call", "rerank", "--target", judge.address, "--top-n", "2", "capital of France", str(path))
    assert status == 0
    with imp_service.connect(judge.address) as client:
        ranking = client.rerank("capital of France", DOCUMENTS, top_n=2)
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert [(int(index), text) for _, index, text in lines] == [(each.index, DOCUMENTS[each.index]) for each in ranking]
