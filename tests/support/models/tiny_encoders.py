"""Tiny BERTs with random weights: that make vectors, or the score of a pair; as a folder or as a GGUF file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from support.files.gguf_contents import GgufContents
from support.files.hf_directory import write_saved
from support.files.hf_weights import Array, Weights, filled
from support.files.sentence_folder import write_pooling
from support.files.text_export import export_text


@dataclasses.dataclass(frozen=True)
class TinyEncoder:
    pooling: str = "mean"  # rank: with a classifier of one label
    vocab_size: int = 53
    n_layers: int = 2
    hidden_size: int = 32
    ffn_size: int = 48
    n_heads: int = 2
    context: int = 128
    seed: int = 0

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, ffn = self.hidden_size, self.ffn_size
        yield "embeddings.word_embeddings.weight", (self.vocab_size, hidden)
        yield "embeddings.position_embeddings.weight", (self.context, hidden)
        yield "embeddings.token_type_embeddings.weight", (2, hidden)
        products = [
            ("attention.self.query", hidden, hidden), ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden), ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", ffn, hidden), ("output.dense", hidden, ffn),
        ]  # fmt: skip
        layers = [f"encoder.layer.{i}." for i in range(self.n_layers)]
        named = [(at + name, n, k) for at in layers for name, n, k in products] + [("pooler.dense", hidden, hidden)]
        for name, n, k in named:
            yield f"{name}.weight", (n, k)
            yield f"{name}.bias", (n,)
        norms = [f"{at}{part}.LayerNorm" for at in layers for part in ("attention.output", "output")]
        for name in ("embeddings.LayerNorm", *norms):
            yield f"{name}.weight", (hidden,)
            yield f"{name}.bias", (hidden,)

    def tensors(self) -> dict[str, Array]:
        prefix = "bert." if self.pooling == "rank" else ""
        shapes = [(prefix + name, shape) for name, shape in self._shapes()]
        if self.pooling == "rank":
            shapes += [("classifier.weight", (1, self.hidden_size)), ("classifier.bias", (1,))]
        return {name: filled("bert", name, shape, self.seed).astype(np.float32) for name, shape in shapes}

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["BertForSequenceClassification" if self.pooling == "rank" else "BertModel"],
            "model_type": "bert", "hidden_act": "gelu", "hidden_size": self.hidden_size,
            "intermediate_size": self.ffn_size, "layer_norm_eps": 1e-12, "max_position_embeddings": self.context,
            "num_attention_heads": self.n_heads, "num_hidden_layers": self.n_layers, "pad_token_id": 0,
            "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": self.vocab_size,
        }  # fmt: skip

    def weights(self) -> Weights:
        return Weights(self.config(), self.tensors(), [])

    def write_folder(self, folder: Path) -> Path:
        """The folder of sentence-transformers, without a tokenizer, with the numbers that older ones have."""
        prefix = "bert." if self.pooling == "rank" else ""
        numbers: dict[str, Any] = {f"{prefix}embeddings.position_ids": np.arange(self.context)[None]}
        write_saved(Weights(self.config(), self.tensors() | numbers, []), folder)
        return folder if self.pooling == "rank" else write_pooling(folder, self.pooling)

    def contents(self) -> GgufContents:
        """Without a tokenizer."""
        return export_text(self.weights(), "bert", self.pooling, {"attention.causal": False})

    def write(self, path: Path) -> Path:
        return self.contents().write(path)
