"""Writes the folder of a BERT as a GGUF file, with its vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.files.float_tensors import read_floats
from support.files.hf_weights import Weights
from support.files.text_export import export_text

# llama.cpp never quantizes these.
_LOOKED_UP = ("position_embd.weight", "token_types.weight")


def write_bert(folder: Path, path: Path, dtype: str = "f32") -> Path:
    """Writes its weights, those of products and of tokens in this type, and its vocabulary."""
    weights = Weights(json.loads((folder / "config.json").read_text()), read_floats(folder / "model.safetensors"), [])
    contents = export_text(weights, "bert", "mean", {"attention.causal": False})
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    contents.keys |= word_piece(sorted(vocabulary, key=vocabulary.__getitem__))
    for name, tensor in contents.tensors.items():
        if tensor.values.ndim == 2 and name not in _LOOKED_UP:
            tensor.dtype = dtype
    return contents.write(path)


def word_piece(words: list[str]) -> dict[str, Any]:
    """Returns the keys of BERT's vocabulary: in GGUF a word begins with a mark, and the rest of one has none."""
    special = [word.startswith("[") and word.endswith("]") for word in words]
    spelled = [
        word if is_special else word[2:] if word.startswith("##") else f"\u2581{word}"
        for word, is_special in zip(words, special, strict=True)
    ]
    places = {name: words.index(f"[{name}]") for name in ("UNK", "SEP", "PAD", "CLS", "MASK")}
    keys = {
        "model": "bert",
        "pre": "jina-v2-en",
        "tokens": spelled,
        "token_type": [3 if is_special else 1 for is_special in special],
        "token_type_count": 2,
        "unknown_token_id": places["UNK"],
        "seperator_token_id": places["SEP"],
        "padding_token_id": places["PAD"],
        "cls_token_id": places["CLS"],
        "mask_token_id": places["MASK"],
    }
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
