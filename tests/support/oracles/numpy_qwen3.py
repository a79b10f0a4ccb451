"""Runs a Qwen3-shaped GGUF file with NumPy in float64: the oracle of the built-in models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from support.oracles.numpy_rope import NumpyRope, plain
from support.oracles.numpy_transformer import NumpyLayer, NumpyTransformer

Array = NDArray[np.float64]
# Weights of a layer as NumpyLayer names them -> as the file does.
NAMES = {
    "attention_norm": "attn_norm",
    **{name: f"attn_{name}" for name in ("q", "k", "v", "q_norm", "k_norm", "output")},
    "ffn_norm": "ffn_norm",
    **{name: f"ffn_{name}" for name in ("gate", "up", "down")},
}


def metadata(path: Path) -> dict[str, Any]:
    """Returns every key of the file with its value."""
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


@dataclass(frozen=True)
class NumpyQwen3:
    """Weights in float64 and the metadata of the file; logits() runs the whole model."""

    facts: dict[str, Any]
    weights: dict[str, Array]

    @staticmethod
    def load(path: Path) -> NumpyQwen3:
        weights = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in gguf.GGUFReader(path).tensors
        }
        return NumpyQwen3(metadata(path), weights)

    def logits(self, ids: list[int], *, adjacent: bool = False) -> Array:
        """Returns logits [n_tokens, vocab_size]. `adjacent` is the other, wrong, layout of rotary positions."""
        head_dim = self.facts["qwen3.attention.key_length"]
        rope = NumpyRope(plain(head_dim, self.facts["qwen3.rope.freq_base"]), adjacent=adjacent)
        layers = [
            NumpyLayer({name: self.weights[f"blk.{i}.{stored}.weight"] for name, stored in NAMES.items()}, rope)
            for i in range(self.facts["qwen3.block_count"])
        ]
        return NumpyTransformer(
            embedding=self.weights["token_embd.weight"],
            layers=layers,
            final_norm=self.weights["output_norm.weight"],
            head=self.weights["token_embd.weight"],
            head_dim=head_dim,
            epsilon=self.facts["qwen3.attention.layer_norm_rms_epsilon"],
            attention_scale=head_dim**-0.5,
        ).logits(ids)


def log_likelihood(logits: Array, ids: list[int]) -> float:
    """Returns the sum of ln p(ids[i]) under logits[i]."""
    top = logits.max(axis=-1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
    return float((logits[np.arange(len(ids)), ids] - log_sum).sum())
