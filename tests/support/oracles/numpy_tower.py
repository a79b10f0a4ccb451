"""Vision towers in float64, from their definitions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from support.models import tiny_gemma3_tower as gemma3
from support.models import tiny_gemma4_tower as gemma4
from support.models import tiny_idefics3_tower as idefics3
from support.models import tiny_qwen_tower as qwen
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_siglip_tower import SiglipTower
from support.models.tiny_tower import Pixels, TinyTower
from support.oracles.numpy_transformer import gelu_tanh, layer_norm, rms_norm

Array = NDArray[np.float64]
_EPSILON = float(np.float32(1e-6))


def gelu_erf(x: Array) -> Array:
    found: Array = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return found


def turned(x: Array, angles: Array) -> list[Array]:
    """Both halves of x, of which elements i turn together."""
    first, second = np.split(x, 2, axis=-1)
    return [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)]


class NumpyTower(ABC):
    """`tensors` have the names of the library. Layers are those of SigLIP: LayerNorm, biases, every patch sees all."""

    layers: str
    norms: tuple[str, str]
    output: str
    products: tuple[str, str]

    def __init__(self, tower: TinyTower, tensors: Mapping[str, NDArray[np.floating]]) -> None:
        self.tower = tower
        self.tensors = {name: values.astype(np.float64) for name, values in tensors.items()}

    @abstractmethod
    def weight_of_patches(self) -> Array: ...

    @abstractmethod
    def bias_of_patches(self) -> Array: ...

    @abstractmethod
    def positions(self) -> Array:
        """What is added to the patches."""

    @abstractmethod
    def heads(self, x: Array, at: str) -> list[Array]:
        """q, k and v, rotated, each [patches, heads, elements]."""

    @abstractmethod
    def encode(self, pixels: Pixels) -> Array: ...

    def linear(self, x: Array, name: str) -> Array:
        found: Array = x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]
        return found

    def norm(self, x: Array, name: str) -> Array:
        found: Array = layer_norm(x, self.tensors[f"{name}.weight"], _EPSILON) + self.tensors[f"{name}.bias"]
        return found

    def attention(self, x: Array, at: str) -> Array:
        q, k, v = (each.swapaxes(0, 1) for each in self.heads(x, at))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attended = weights / weights.sum(axis=-1, keepdims=True) @ v
        return self.linear(attended.swapaxes(0, 1).reshape(len(x), -1), f"{at}{self.output}")

    def patches(self, pixels: Pixels) -> Array:
        (rows, columns), size = self.tower.patch_grid, self.tower.patch_size
        colours = (pixels / 255 - np.array(self.tower.mean)) / np.array(self.tower.deviation)
        whole = colours[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
        return whole.transpose(0, 2, 4, 1, 3).reshape(rows * columns, -1)

    def outputs_of_layers(self, pixels: Pixels) -> list[Array]:
        x = self.patches(pixels) @ self.weight_of_patches().T + self.bias_of_patches() + self.positions()
        found = []
        for layer in range(self.tower.n_layers):
            at = f"{self.layers}{layer}."
            x = x + self.attention(self.norm(x, at + self.norms[0]), at)
            up = gelu_tanh(self.linear(self.norm(x, at + self.norms[1]), at + self.products[0]))
            x = x + self.linear(up, at + self.products[1])
            found.append(x)
        return found

    def squares(self, x: Array) -> Array:
        """The patches of each cell, side by side."""
        (rows, columns), by = self.tower.cell_grid, self.tower.reduction
        return x.reshape(rows, by, columns, by, -1).transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)

    def means(self, x: Array) -> Array:
        """Of the patches of each cell."""
        return self.squares(x).reshape(self.tower.n_cells, self.tower.reduction**2, -1).mean(axis=1)


class NumpySiglipTower(NumpyTower):
    tower: SiglipTower
    norms = ("layer_norm1", "layer_norm2")
    output = "self_attn.out_proj"
    products = ("mlp.fc1", "mlp.fc2")

    def weight_of_patches(self) -> Array:
        return self.tensors[f"{self.tower.patches}.weight"].reshape(self.tower.hidden_size, -1)

    def bias_of_patches(self) -> Array:
        return self.tensors[f"{self.tower.patches}.bias"]

    def positions(self) -> Array:
        return self.tensors[self.tower.positions]

    def heads(self, x: Array, at: str) -> list[Array]:
        return [self.linear(x, f"{at}self_attn.{name}_proj").reshape(len(x), self.tower.n_heads, -1) for name in "qkv"]

    def __init__(self, tower: SiglipTower, tensors: Mapping[str, NDArray[np.floating]]) -> None:
        super().__init__(tower, tensors)
        self.layers = tower.layers

    def last_output(self, pixels: Pixels) -> Array:
        return self.norm(self.outputs_of_layers(pixels)[-1], self.tower.last_norm)


class NumpyIdefics3Tower(NumpySiglipTower):
    def encode(self, pixels: Pixels) -> Array:
        found: Array = self.squares(self.last_output(pixels)) @ self.tensors[idefics3.PROJECTION].T
        return found


class NumpyGemma3Tower(NumpySiglipTower):
    def encode(self, pixels: Pixels) -> Array:
        cells = rms_norm(self.means(self.last_output(pixels)), 1 + self.tensors[gemma3.NORM], _EPSILON)
        found: Array = cells @ self.tensors[gemma3.PROJECTION]
        return found


class NumpyGemma4Tower(NumpyTower):
    tower: Gemma4Tower
    layers = gemma4.LAYERS
    output = "self_attn.o_proj"

    def weight_of_patches(self) -> Array:
        """Its columns are pixels with their colours, those of `patches` are colours with their pixels."""
        by_pixel = self.tensors[gemma4.PATCHES].reshape(self.tower.hidden_size, -1, 3)
        return by_pixel.swapaxes(1, 2).reshape(self.tower.hidden_size, -1)

    def bias_of_patches(self) -> Array:
        return np.zeros(self.tower.hidden_size)

    def positions(self) -> Array:
        rows, columns = self.tower.patch_grid
        of_columns, of_rows = self.tensors[gemma4.POSITIONS]
        found: Array = (of_rows[:rows, None] + of_columns[None, :columns]).reshape(rows * columns, -1)
        return found

    def linear(self, x: Array, name: str) -> Array:
        weight = self.tensors[f"{name}.linear.weight"]
        if not self.tower.is_clipped:
            return x @ weight.T
        low_in, high_in, low_out, high_out = (self.tensors[f"{name}.{bound}"] for bound in gemma4.BOUNDS)
        return np.clip(np.clip(x, low_in, high_in) @ weight.T, low_out, high_out)

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.tensors[f"{name}.weight"], _EPSILON)

    def heads(self, x: Array, at: str) -> list[Array]:
        q, k, v = (
            self.linear(x, f"{at}self_attn.{name}_proj").reshape(len(x), self.tower.n_heads, -1) for name in "qkv"
        )
        q, k = self.norm(q, f"{at}self_attn.q_norm"), self.norm(k, f"{at}self_attn.k_norm")
        # The scores are not divided by the root of a head's size.
        return [self.rotated(q) * np.sqrt(q.shape[-1]), self.rotated(k), rms_norm(v, np.ones(1), _EPSILON)]

    def rotated(self, x: Array) -> Array:
        """Each half of a head by itself: the first by the column, the second by the row."""
        rows, columns = self.tower.patch_grid
        by_row, by_column = np.divmod(np.arange(rows * columns), columns)
        halves = []
        for half, at in zip(np.split(x, 2, axis=-1), (by_column, by_row), strict=True):
            n_pairs = half.shape[-1] // 2
            angles = np.outer(at, 100.0 ** (-np.arange(n_pairs) / n_pairs))[:, None]
            halves += turned(half, angles)
        return np.concatenate(halves, axis=-1)

    def outputs_of_layers(self, pixels: Pixels) -> list[Array]:
        x = self.patches(pixels) @ self.weight_of_patches().T + self.positions()
        found = []
        for layer in range(self.tower.n_layers):
            at = f"{self.layers}{layer}."
            attended = self.attention(self.norm(x, f"{at}input_layernorm"), at)
            x = x + self.norm(attended, f"{at}post_attention_layernorm")
            read = self.norm(x, f"{at}pre_feedforward_layernorm")
            gated = gelu_tanh(self.linear(read, f"{at}mlp.gate_proj")) * self.linear(read, f"{at}mlp.up_proj")
            x = x + self.norm(self.linear(gated, f"{at}mlp.down_proj"), f"{at}post_feedforward_layernorm")
            found.append(x)
        return found

    def encode(self, pixels: Pixels) -> Array:
        cells = self.means(self.outputs_of_layers(pixels)[-1]) * np.sqrt(self.tower.hidden_size)
        if self.tower.is_standardized:
            cells = (cells - self.tensors[gemma4.MEAN]) * self.tensors[gemma4.FACTORS]
        found: Array = rms_norm(cells, np.ones(1), _EPSILON) @ self.tensors[gemma4.PROJECTION].T
        return found


class NumpyQwenTower(NumpyTower):
    tower: QwenTower
    layers = qwen.LAYERS
    norms = ("norm1", "norm2")
    output = "attn.proj"
    products = ("mlp.linear_fc1", "mlp.linear_fc2")

    def weight_of_patches(self) -> Array:
        """Both frames see the same picture."""
        found: Array = self.tensors[f"{qwen.PATCHES}.weight"].sum(axis=2).reshape(self.tower.hidden_size, -1)
        return found

    def bias_of_patches(self) -> Array:
        return self.tensors[f"{qwen.PATCHES}.bias"]

    def positions(self) -> Array:
        """Each colour of a picture is stretched like this: the corners stay where they are."""
        side, (rows, columns) = self.tower.table_side, self.tower.patch_grid
        table = self.tensors[qwen.POSITIONS].reshape(side, side, -1)
        places = np.arange(side)

        def stretched(values: Array, n: int) -> Array:
            return np.array([np.interp(np.linspace(0, side - 1, n), places, line) for line in values.T]).T

        tall = np.stack([stretched(table[:, column], rows) for column in range(side)], axis=1)
        found = np.stack([stretched(tall[row], columns) for row in range(rows)])
        return found.reshape(rows * columns, -1)

    def heads(self, x: Array, at: str) -> list[Array]:
        whole = self.linear(x, f"{at}attn.qkv").reshape(len(x), 3, self.tower.n_heads, -1)
        q, k, v = whole.swapaxes(0, 1)
        return [self.rotated(q), self.rotated(k), v]

    def rotated(self, x: Array) -> Array:
        """Elements i and i + half turn together: by the row for the first half of the pairs, else by the column."""
        rows, columns = self.tower.patch_grid
        half = x.shape[-1] // 2
        frequencies = 10000.0 ** (-np.arange(half // 2) / (half // 2))
        by_row, by_column = np.divmod(np.arange(rows * columns), columns)
        angles = np.concatenate([np.outer(by_row, frequencies), np.outer(by_column, frequencies)], axis=1)[:, None]
        return np.concatenate(turned(x, angles), axis=-1)

    def merged(self, squares: Array, at: str) -> Array:
        return self.linear(gelu_erf(self.linear(squares, f"{at}linear_fc1")), f"{at}linear_fc2")

    def encode(self, pixels: Pixels) -> Array:
        outputs = self.outputs_of_layers(pixels)
        slices = [self.merged(self.squares(self.norm(outputs[-1], f"{qwen.MERGER}norm")), qwen.MERGER)]
        for number, layer in enumerate(self.tower.taps):
            at = f"{qwen.TAPS}{number}."
            slices.append(self.merged(self.norm(self.squares(outputs[layer]), f"{at}norm"), at))
        return np.concatenate(slices, axis=1)


_KINDS: dict[type[TinyTower], type[NumpyTower]] = {
    Gemma3Tower: NumpyGemma3Tower,
    Gemma4Tower: NumpyGemma4Tower,
    Idefics3Tower: NumpyIdefics3Tower,
    QwenTower: NumpyQwenTower,
}


def numpy_tower(tower: TinyTower, tensors: Mapping[str, NDArray[np.floating]]) -> NumpyTower:
    return _KINDS[type(tower)](tower, tensors)
