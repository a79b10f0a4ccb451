"""A vision tower of SigLIP's kind in float64, from its definition."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from support.models.tiny_towers import PATCHES, PROJECTION, Pixels, TinyTower
from support.oracles.numpy_transformer import layer_norm

Array = NDArray[np.float64]
_EPSILON = float(np.float32(1e-6))


def gelu_tanh(x: Array) -> Array:
    found: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return found


class NumpyTower:
    """`tensors` have the names of the library."""

    def __init__(self, tower: TinyTower, tensors: Mapping[str, NDArray[np.floating]]) -> None:
        self.tower = tower
        self.tensors = {name: values.astype(np.float64) for name, values in tensors.items()}

    def linear(self, x: Array, name: str) -> Array:
        found: Array = x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]
        return found

    def norm(self, x: Array, name: str) -> Array:
        found: Array = layer_norm(x, self.tensors[f"{name}.weight"], _EPSILON) + self.tensors[f"{name}.bias"]
        return found

    def attention(self, x: Array, at: str) -> Array:
        heads = [self.linear(x, f"{at}{name}_proj").reshape(len(x), self.tower.n_heads, -1) for name in "qkv"]
        q, k, v = (each.swapaxes(0, 1) for each in heads)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attended = weights / weights.sum(axis=-1, keepdims=True) @ v
        return self.linear(attended.swapaxes(0, 1).reshape(len(x), -1), f"{at}out_proj")

    def patches(self, pixels: Pixels) -> Array:
        side, size = self.tower.side, self.tower.patch_size
        colours = (pixels / 255 - np.array(self.tower.mean)) / np.array(self.tower.deviation)
        whole = colours[: side * size, : side * size].reshape(side, size, side, size, 3)
        return whole.transpose(0, 2, 4, 1, 3).reshape(side * side, -1)

    def cells(self, x: Array) -> Array:
        side, by = self.tower.side, self.tower.shuffle
        grid = x.reshape(side // by, by, side // by, by, -1)
        return grid.transpose(0, 2, 1, 3, 4).reshape(self.tower.n_cells, -1)

    def encode(self, pixels: Pixels) -> Array:
        weight = self.tensors[PATCHES].reshape(self.tower.hidden_size, -1)
        x = self.patches(pixels) @ weight.T + self.tensors[PATCHES.replace("weight", "bias")]
        x = x + self.tensors["model.vision_model.embeddings.position_embedding.weight"]
        for layer in range(self.tower.n_layers):
            at = f"model.vision_model.encoder.layers.{layer}."
            x = x + self.attention(self.norm(x, f"{at}layer_norm1"), f"{at}self_attn.")
            up = gelu_tanh(self.linear(self.norm(x, f"{at}layer_norm2"), f"{at}mlp.fc1"))
            x = x + self.linear(up, f"{at}mlp.fc2")
        x = self.norm(x, "model.vision_model.post_layernorm")
        found: Array = self.cells(x) @ self.tensors[PROJECTION].T
        return found
