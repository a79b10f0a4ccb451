"""Every family of embedding models and rerankers gives the vectors of `transformers` for the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.files.hf_weights import weights_of
from support.files.sentence_folder import write_pooling
from support.files.text_export import export_text
from support.models.forward_runs import distance, load
from support.models.text_cases import CASES, TextCase, peer_vectors, pooled, rows_of
from support.models.text_runs import vectors
from support.oracles.tolerances import VECTORS

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def saved(case: TextCase, peer: Any, folder: Path) -> Path:
    peer.save_pretrained(folder)
    return folder if case.pooling == "rank" else write_pooling(folder, case.pooling)


@pytest.mark.parametrize("name", CASES)
def test_emb_1_hon_1_a_family_makes_the_vectors_of_transformers(name: str, tmp_path: Path) -> None:
    """Compares a GGUF file and a folder. The controls detect each fact that is left out, and a row off by one."""
    case = CASES[name]
    peer = case.peer()
    weights = weights_of(peer)
    file = export_text(weights, case.architecture, case.pooling, case.keys).write(tmp_path / "m.gguf")
    models = [load(path, tmp_path, kv_dtype="f32") for path in (file, saved(case, peer, tmp_path / "saved"))]
    assert [model.warnings for model in models] == [[], []]
    expected = peer_vectors(case, peer)
    gguf, folder = (vectors(model, case.texts) for model in models)
    assert distance(gguf, expected) < VECTORS
    assert distance(folder, expected) < VECTORS
    for fact, turn_off in case.off.items():
        changed = case.peer()
        turn_off(changed)
        assert distance(gguf, peer_vectors(case, changed)) > 4 * VECTORS, fact
    if case.pooling != "rank":
        moved = slice(0, -1) if case.pooling == "last" else slice(1, None)
        rows = [rows_of(peer, text, case.has_types)[moved] for text in case.texts[1:]]
        assert distance(gguf[1:], np.array([pooled(each, case.pooling) for each in rows])) > 4 * VECTORS
    if case.has_types:
        assert not np.array_equal(gguf[2], gguf[-1])  # the same tokens, with types
