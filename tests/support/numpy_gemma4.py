"""The parts of Gemma 4 that differ from other decoders, in float64: the oracle of its forward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from support.numpy_transformer import Array, NumpyLayer, NumpyTransformer, gelu_tanh, rms_norm


@dataclasses.dataclass
class Gemma4Layer(NumpyLayer):
    number: int = 0
    keys_of: int = 0  # the layer whose keys and values it reads; itself, or an earlier one
    output_scale: float = 1.0


@dataclasses.dataclass
class NumpyGemma4(NumpyTransformer):
    layer_table: Array | None = None  # [vocab, layers · size]
    layer_projection: Array | None = None  # [layers · size, hidden]
    layer_projection_norm: Array | None = None  # [size]

    def logits(self, tokens: Sequence[int], positions: Sequence[int] | None = None) -> Array:
        self.held: dict[int, tuple[Array, Array]] = {}
        self.layer_inputs = self.inputs_of_layers(list(tokens))
        return super().logits(tokens, positions)

    def inputs_of_layers(self, tokens: list[int]) -> Array:
        """Returns the inputs of layers [rows, layers, size]."""
        if self.layer_table is None or self.layer_projection is None or self.layer_projection_norm is None:
            return np.zeros((len(tokens), len(self.layers), 0))
        size = len(self.layer_projection_norm)
        x = self.embedding[tokens] * self.embedding_scale
        projected = (x @ self.layer_projection.T * len(x[0]) ** -0.5).reshape(len(tokens), -1, size)
        looked_up = self.layer_table[tokens].reshape(projected.shape) * np.sqrt(size)
        return (rms_norm(projected, self.layer_projection_norm, self.epsilon) + looked_up) / np.sqrt(2)

    def keys_values(self, layer: NumpyLayer, x: Array, positions: Array) -> tuple[Array, Array]:
        assert isinstance(layer, Gemma4Layer)
        if layer.keys_of == layer.number:
            rows = layer.linear(x, "v" if "v" in layer.weights else "k")
            v = rows.reshape(len(x), -1, layer.head_dim)
            k = self.rotated_heads(layer, x, "k", positions)
            self.held[layer.number] = k, rms_norm(v, np.ones(layer.head_dim), self.epsilon)
        return self.held[layer.keys_of]

    def through(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        assert isinstance(layer, Gemma4Layer)
        attended = self.attention(layer, self.norm(layer, x, "attention_norm"), positions)
        x = x + self.norm(layer, attended, "post_attention_norm")
        fed = self.dense(layer, self.norm(layer, x, "ffn_norm"))
        if "router" in layer.weights:
            fed = self.norm(layer, fed, "post_dense_norm")
            fed = fed + self.norm(layer, self.chosen_experts(layer, x), "post_expert_norm")
        x = x + self.norm(layer, fed, "post_ffn_norm")
        if self.layer_inputs.shape[-1]:
            gated = gelu_tanh(layer.linear(x, "embedding_gate")) * self.layer_inputs[:, layer.number]
            x = x + self.norm(layer, layer.linear(gated, "embedding_output"), "post_embedding_norm")
        return x * layer.output_scale

    def dense(self, layer: NumpyLayer, x: Array) -> Array:
        return layer.linear(layer.activation(layer.linear(x, "gate")) * layer.linear(x, "up"), "down")

    def chosen_experts(self, layer: NumpyLayer, x: Array) -> Array:
        """Returns the experts' output. Router and experts have separate norms; each expert's result has a factor."""
        routed = rms_norm(x, layer.weights["router_norm"], self.epsilon) * len(x[0]) ** -0.5
        weights = self.weights_of_experts(layer, routed) * layer.weights["expert_scales"]
        return self.mixed(layer, self.norm(layer, x, "expert_norm"), weights)
