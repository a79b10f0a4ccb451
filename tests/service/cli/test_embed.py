"""imp embed and imp rerank: what they print, and what other commands say of models that generate no text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import imp_service
from support.models.worded_encoders import write_encoder

TEXTS = ("Hello", "the weather in the north")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder") / "tiny-encoder", prompts={"query": "query: "})


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("ranker") / "tiny-ranker", "rank")


def test_emb_4_imp_embed_prints_a_line_of_numbers_for_each_text(call, encoder: Path) -> None:
    status, out, _ = call("embed", "-m", str(encoder), *TEXTS)
    assert status == 0
    with imp_service.load(encoder) as model:
        expected = np.asarray(model.embed(TEXTS))
    found = np.array([[float(number) for number in line.split()] for line in out.splitlines()], np.float32)
    assert found.tobytes() == expected.tobytes()


def test_emb_4_imp_embed_writes_json_and_arrays_of_the_same_bits(call, imp, encoder: Path, tmp_path: Path) -> None:
    status, out, _ = call("embed", "-m", str(encoder), "--json", "--npy", "v.npy", "--dimensions", "5", *TEXTS)
    document, array = json.loads(out), np.load(tmp_path / "v.npy")
    assert status == 0
    assert array.shape == (2, 5)
    assert np.array(document["vectors"], np.float32).tobytes() == array.tobytes()
    assert (document["model"], document["dimensions"], document["truncated"]) == ("tiny-encoder", 5, [])
    piped = imp("embed", "-m", str(encoder), "--npy", "w.npy", stdin=b"Hello\n\nthe weather in the north\r\n")
    assert (piped.returncode, piped.stdout) == (0, b""), piped.stderr
    assert np.load(tmp_path / "w.npy").shape == (2, 32)


def test_emb_4_imp_embed_takes_the_options_of_the_library(call, encoder: Path) -> None:
    _, prompted, _ = call("embed", "-m", str(encoder), "--prompt-name", "query", "Hello")
    _, spelled, _ = call("embed", "-m", str(encoder), "query: Hello")
    assert prompted == spelled
    status, _, err = call("embed", "-m", str(encoder), "--truncate", "end", "--max-tokens", "6", "the weather " * 9)
    assert (status, err.splitlines()[-1]) == (0, "imp: warning: 1 text did not fit and was cut")
    status, _, err = call("embed", "-m", str(encoder), "--dimensions", "33", "Hello")
    assert (status, "dimensions: 33, expected at most 32" in err) == (64, True)


def test_emb_4_a_command_line_without_a_model_is_told_of_one(call, encoder: Path) -> None:
    for words, named in (
        (("embed", "Hello"), "all-MiniLM-L6-v2"),
        (("embed", str(encoder), "Hello"), str(encoder)),
        (("rerank", "the north", "docs.txt"), "ms-marco-MiniLM-L6-v2"),
    ):
        status, out, err = call(*words)
        assert (status, out) == (64, "")
        assert f"USAGE: no model, expected -m MODEL, such as -m {named};" in err
    # A user who says how the demo makes vectors gets them.
    assert call("embed", "--set", "model.overrides.pooling=mean", "Hello")[0] == 0


def test_emb_6_imp_rerank_prints_documents_from_the_best_on(call, imp, ranker: Path, tmp_path: Path) -> None:
    (tmp_path / "docs.txt").write_text("a toaster\nthe weather in the north\n\nHello\n")
    documents = ["a toaster", "the weather in the north", "Hello"]
    status, out, _ = call("rerank", "-m", str(ranker), "the north", "docs.txt")
    with imp_service.load(ranker) as model:
        ranking = model.rerank("the north", documents)
    assert status == 0
    assert out.splitlines() == [f"{each.score:.6f}  {each.index}  {documents[each.index]}" for each in ranking]
    asked = ("rerank", "-m", str(ranker), "the north", "--json", "--top-n", "2")
    piped = imp(*asked, stdin=(tmp_path / "docs.txt").read_bytes())
    found = json.loads(piped.stdout)["results"]
    assert [(each["index"], each["document"]) for each in found] == [
        (each.index, documents[each.index]) for each in ranking[:2]
    ]


@pytest.mark.parametrize("command", ["run", "chat"])
def test_emb_7_commands_that_generate_name_the_one_that_fits(call, encoder: Path, ranker: Path, command: str) -> None:
    for path, said in ((encoder, "imp embed"), (ranker, "imp rerank")):
        status, _, err = call(command, "-m", str(path), "Hello")
        assert (status, err.splitlines()[-1].endswith(f"generates no text: {said}")) == (64, True), err


def test_emb_7_inspect_doctor_and_k8s_know_encoders(call, encoder: Path, ranker: Path, tmp_path: Path) -> None:
    status, out, err = call("inspect", str(encoder))
    assert status == 0, err
    assert "\nvectors: 32 numbers (mean) of texts of at most 128 tokens: imp embed; prompts: query\n" in out
    assert "chat template" not in out and "default sampling" not in out
    assert "\nvectors: scores (rank) of pairs of at most 128 tokens: imp rerank\n" in call("inspect", str(ranker))[1]
    found = json.loads(call("inspect", "--json", str(encoder))[1])["embeddings"]
    assert (found["pooling"], found["dimensions"], found["max_tokens"]) == ("mean", 32, 128)
    unknown = write_encoder(tmp_path / "unknown")
    (unknown / "modules.json").unlink()
    assert 'set model.overrides.pooling to what its author specifies, "mean" or "cls"' in call("inspect", "unknown")[1]
    status, out, _ = call("doctor", "--set", f"model.path={encoder}")
    assert (status, "vectors: 32 numbers (mean)" in out) == (0, True)
    status, out, _ = call("k8s", str(encoder))
    assert (status, "kind: " in out) == (0, True)


def test_inspect_shows_no_vectors_of_a_model_that_only_generates(call) -> None:
    assert "\nvectors: " not in call("inspect")[1]
    assert json.loads(call("inspect", "--json")[1])["embeddings"] is None
