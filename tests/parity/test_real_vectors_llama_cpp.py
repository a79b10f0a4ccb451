"""A GGUF file of a real encoder gives the vectors that llama.cpp makes of it (EMB-3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import imp_service
from determinism.test_real_vectors import real_folder
from determinism.test_real_weights import with_real_weights
from support.files.bert_file import write_bert
from support.oracles.neighbours import cosines
from support.oracles.tolerances import LLAMA_CPP_COSINE
from support.text.docstrings import docstrings

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

pytestmark = [with_real_weights, pytest.mark.timeout(600)]

MOST_TOKENS = 250


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    from support.oracles import llama_cpp_peer

    llama_cpp_peer.start()


@pytest.mark.parametrize("file_type", LLAMA_CPP_COSINE)
def test_emb_3_a_file_gives_the_vectors_of_llama_cpp(file_type: str, tmp_path: Path) -> None:
    from support.oracles import llama_cpp_peer

    path = write_bert(real_folder(), tmp_path / "model.gguf", file_type)
    with imp_service.load(path) as model:
        ids = [ids for text in docstrings(100) if len(ids := model.tokenize(text)) <= MOST_TOKENS]
        ours = np.asarray(model.embed(ids, add_special_tokens=False))
    theirs = llama_cpp_peer.vectors(path, ids)
    errors = 1 - cosines(ours, theirs)
    print(f"{file_type}: 1 - cosine: at most {errors.max():.1e}, mean {errors.mean():.1e}")
    assert errors.max() < LLAMA_CPP_COSINE[file_type]
    assert (1 - cosines(ours, np.roll(theirs, 1, axis=0))).min() > LLAMA_CPP_COSINE[file_type]
