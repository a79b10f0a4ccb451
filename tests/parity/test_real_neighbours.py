"""Vectors of a real model are those of sentence-transformers, and so are the neighbours of 1,000 texts (EMB-14)."""

from __future__ import annotations

import numpy as np
import pytest

import imp_service
from determinism.test_real_vectors import real_folder
from determinism.test_real_weights import with_real_weights
from support.oracles.neighbours import cosines, neighbours
from support.oracles.tolerances import COSINE
from support.text.docstrings import docstrings

sentence_transformers = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

pytestmark = [with_real_weights, pytest.mark.timeout(600)]

N = 1000


def test_emb_14_vectors_and_neighbours_are_those_of_sentence_transformers() -> None:
    texts = docstrings(N)
    with imp_service.load(real_folder(), "limits.truncate=end") as model:  # as the peer does
        ours = np.asarray(model.embed(texts))
    peer = sentence_transformers.SentenceTransformer(str(real_folder()), device="cpu")
    theirs = peer.encode(texts, batch_size=64, normalize_embeddings=True)
    errors = 1 - cosines(ours, theirs)
    print(f"1 - cosine: at most {errors.max():.1e}, mean {errors.mean():.1e}")
    assert errors.max() < COSINE["f32"]
    assert np.array_equal(neighbours(ours), neighbours(theirs))
    others = ours.copy()
    others[:, 0] += 0.01
    assert (1 - cosines(others, theirs)).max() > COSINE["f32"]
    assert not np.array_equal(neighbours(others), neighbours(theirs))
