"""A real embedding model gives the similarities that its page prints, and each text the same bits in any company."""

from __future__ import annotations

import random
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import imp_service
from determinism.test_real_vectors import FIRST_IDS, PUBLISHED, TEXTS, real_folder
from determinism.test_real_weights import with_real_weights
from imp_service import LanguageModel
from support.files.bert_file import write_bert
from support.oracles.neighbours import cosines, kept
from support.oracles.tolerances import COSINE, KEPT_NEIGHBOURS, PRINTED_SIMILARITY, UNIT_LENGTH
from support.servers.http_served import serve_http
from support.servers.served_models import from_file
from support.servers.vector_served import bytes_of, embed
from support.text.docstrings import docstrings

pytestmark = [with_real_weights, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def model() -> Iterator[LanguageModel]:
    with imp_service.load(real_folder()) as model:
        yield model


def test_emb_4_the_similarities_are_those_of_the_page(model: LanguageModel) -> None:
    assert model.tokenize(TEXTS[0]) == FIRST_IDS
    vectors = np.asarray(model.embed(TEXTS), np.float64)
    assert vectors.shape == (3, 384)
    assert np.abs(vectors @ vectors.T - PUBLISHED).max() < PRINTED_SIMILARITY
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < UNIT_LENGTH
    # Two words in another order are seen.
    other = np.asarray(model.embed(["The lovely weather is today."]), np.float64)
    assert abs(float(other[0] @ vectors[1]) - PUBLISHED[0][1]) > 10 * PRINTED_SIMILARITY


def texts_of_words(chosen: random.Random, n: int) -> list[str]:
    """Texts of many lengths."""
    words = " ".join(TEXTS).split()
    return [" ".join(chosen.choices(words, k=chosen.randint(1, 120))) for _ in range(n)]


def test_emb_4_a_vector_has_the_same_bits_alone_and_among_others(model: LanguageModel) -> None:
    chosen = random.Random(5)
    texts = texts_of_words(chosen, 96)
    together = [vector.tobytes() for vector in model.embed(texts)]
    order = chosen.sample(range(96), 96)
    shuffled = [vector.tobytes() for vector in model.embed([texts[i] for i in order])]
    assert shuffled == [together[i] for i in order]
    for i in range(0, 96, 8):
        assert model.embed([texts[i]])[0].tobytes() == together[i]
    assert len(set(together)) == 96


def test_emb_2_emb_9_both_doors_give_the_bits_of_a_text_alone(model: LanguageModel) -> None:
    texts = texts_of_words(random.Random(9), 200)
    alone = [model.embed([text])[0].tobytes() for text in texts]
    assert len(set(alone)) == len(texts)
    parts = [slice(first, first + 8) for first in range(0, len(texts), 8)]
    with serve_http(model=from_file(real_folder())) as http, ThreadPoolExecutor(8) as pool:

        def over_grpc(part: slice) -> list[bytes]:
            return bytes_of(embed(http.served, texts[part]))

        def over_http(part: slice) -> list[bytes]:
            body = {"input": texts[part], "encoding_format": "base64"}
            reply = http.client.post("/v1/embeddings", body)
            return [b64decode(each["embedding"]) for each in reply.json["data"]]

        for door in (over_grpc, over_http):
            assert [vector for part in pool.map(door, parts) for vector in part] == alone


@pytest.mark.parametrize("file_type", COSINE)
def test_emb_3_emb_14_a_file_has_the_vectors_of_its_folder(
    model: LanguageModel, file_type: str, tmp_path: Path
) -> None:
    texts = [text for text in docstrings(600) if len(text.split()) <= 60]
    whole = np.asarray(model.embed(texts, truncate="end", max_tokens=256))
    with imp_service.load(write_bert(real_folder(), tmp_path / "model.gguf", file_type)) as smaller:
        found = np.asarray(smaller.embed(texts, truncate="end", max_tokens=256))
    errors, share = 1 - cosines(found, whole), kept(found, whole)
    print(
        f"{file_type}: 1 - cosine: at most {errors.max():.1e}, mean {errors.mean():.1e}; neighbours kept: {share:.4f}"
    )
    assert errors.max() < COSINE[file_type] and share >= KEPT_NEIGHBOURS[file_type]
    assert (found == whole).all() == (file_type == "f32")
