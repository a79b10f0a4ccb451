"""Runs a Qwen3-shaped GGUF file with NumPy in float64: the oracle of the built-in models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def metadata(path: Path) -> dict[str, Any]:
    """Returns every key of the file with its value."""
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate_halves(x: Array, theta: float) -> Array:
    """Rotates x [n_heads, n_tokens, head_dim]: dimension i pairs with i + head_dim / 2."""
    n_tokens, half = x.shape[1], x.shape[2] // 2
    angle = np.outer(np.arange(n_tokens), theta ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], axis=-1)


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

    def logits(self, ids: list[int], rotate: Any = rotate_halves) -> Array:
        """Returns logits [n_tokens, vocab_size]. Tests that need a wrong model pass another `rotate`."""
        embedding = self.weights["token_embd.weight"]
        x = embedding[ids]
        for layer in range(self.facts["qwen3.block_count"]):
            x = x + self._attention(x, f"blk.{layer}.", rotate)
            x = x + self._feed_forward(x, f"blk.{layer}.")
        return self._norm(x, "output_norm") @ embedding.T

    def _norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.weights[name + ".weight"], self.facts["qwen3.attention.layer_norm_rms_epsilon"])

    def _attention(self, stream: Array, block: str, rotate: Any) -> Array:
        x = self._norm(stream, block + "attn_norm")
        n_tokens, head_dim = len(x), self.facts["qwen3.attention.key_length"]

        def heads(name: str) -> Array:  # [n_heads, n_tokens, head_dim]
            return (x @ self.weights[f"{block}attn_{name}.weight"].T).reshape(n_tokens, -1, head_dim).swapaxes(0, 1)

        theta = self.facts["qwen3.rope.freq_base"]
        query = rotate(self._norm(heads("q"), block + "attn_q_norm"), theta)
        key = rotate(self._norm(heads("k"), block + "attn_k_norm"), theta)
        group = len(query) // len(key)
        key, value = np.repeat(key, group, axis=0), np.repeat(heads("v"), group, axis=0)
        scores = query @ key.swapaxes(1, 2) / np.sqrt(head_dim)
        scores[:, np.triu(np.ones((n_tokens, n_tokens), dtype=bool), 1)] = -np.inf
        share = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = share / share.sum(axis=-1, keepdims=True) @ value
        return mixed.swapaxes(0, 1).reshape(n_tokens, -1) @ self.weights[block + "attn_output.weight"].T

    def _feed_forward(self, stream: Array, block: str) -> Array:
        x = self._norm(stream, block + "ffn_norm")
        gate, up = (x @ self.weights[f"{block}ffn_{name}.weight"].T for name in ("gate", "up"))
        return gate / (1 + np.exp(-gate)) * up @ self.weights[block + "ffn_down.weight"].T


def log_likelihood(logits: Array, ids: list[int]) -> float:
    """Returns the sum of ln p(ids[i]) under logits[i]."""
    top = logits.max(axis=-1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
    return float((logits[np.arange(len(ids)), ids] - log_sum).sum())
