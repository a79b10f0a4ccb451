"""A decoder-only transformer in float64, written from the definitions: the oracle of whole forward passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from support.numpy_rope import NumpyRope

Array = NDArray[np.float64]


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def soft_cap(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap) if cap else x


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def expert_weights(scores: Array, n_used: int, normalized: bool, scale: float = 1.0) -> Array:
    """[rows, experts]: 0 where a row does not go; equal scores count in the order of the experts."""
    chosen = np.zeros(scores.shape, bool)
    np.put_along_axis(chosen, np.argsort(-scores, axis=1, kind="stable")[:, :n_used], True, axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    weights = np.where(chosen, weights, 0)
    return scale * (weights / weights.sum(axis=1, keepdims=True) if normalized else weights)


@dataclasses.dataclass
class NumpyLayer:
    """Weights [out, in] by name; a name that is missing is a step that is left out."""

    weights: dict[str, Array]
    rope: NumpyRope
    window: int = 0

    def linear(self, x: Array, name: str) -> Array:
        out = x @ self.weights[name].T
        return out + self.weights[name + "_bias"] if name + "_bias" in self.weights else out


@dataclasses.dataclass
class NumpyTransformer:
    embedding: Array  # [vocab, hidden]
    layers: Sequence[NumpyLayer]
    final_norm: Array
    head: Array  # [vocab, hidden]
    head_dim: int
    epsilon: float
    attention_scale: float
    activation: Callable[[Array], Array] = silu
    embedding_scale: float = 1.0
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    n_experts_used: int = 0
    expert_weights_normalized: bool = True
    expert_weights_scale: float = 1.0
    stored: Callable[[Array], Array] = lambda x: x  # what the cache makes of a key or value

    def logits(self, tokens: Sequence[int], positions: Sequence[int] | None = None) -> Array:
        """[len(tokens), vocab]: all positions (ascending; from 0 where not given) at once, nothing cached."""
        positions = np.asarray(range(len(tokens)) if positions is None else positions, np.float64)
        x = self.embedding[list(tokens)] * self.embedding_scale
        for layer in self.layers:
            x = self.through(layer, x, positions)
        return soft_cap(rms_norm(x, self.final_norm, self.epsilon) @ self.head.T, self.logit_soft_cap)

    def through(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        """The stream after a layer."""
        attended = self.attention(layer, self.norm(layer, x, "attention_norm"), positions)
        x = x + self.norm(layer, attended, "post_attention_norm")
        fed = self.feed_forward(layer, self.norm(layer, x, "ffn_norm"))
        return x + self.norm(layer, fed, "post_ffn_norm")

    def norm(self, layer: NumpyLayer, x: Array, name: str) -> Array:
        return rms_norm(x, layer.weights[name], self.epsilon) if name in layer.weights else x

    def attention(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        q, k, v = (layer.linear(x, name).reshape(len(x), -1, self.head_dim) for name in ("q", "k", "v"))
        q = layer.rope.rotate(self.norm(layer, q, "q_norm"), positions)
        k = layer.rope.rotate(self.norm(layer, k, "k_norm"), positions)
        k, v = (np.repeat(self.stored(heads), q.shape[1] // k.shape[1], axis=1) for heads in (k, v))
        scores = soft_cap(np.einsum("qhd,khd->hqk", q, k) * self.attention_scale, self.attention_soft_cap)
        distance = positions[:, None] - positions[None, :]
        seen = (distance >= 0) & ((distance < layer.window) if layer.window else True)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return layer.linear(np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1), "output")

    def feed_forward(self, layer: NumpyLayer, x: Array) -> Array:
        if "router" in layer.weights:
            return self.experts(layer, x)
        return layer.linear(self.activation(layer.linear(x, "gate")) * layer.linear(x, "up"), "down")

    def experts(self, layer: NumpyLayer, x: Array) -> Array:
        """Every expert sees every row; those that a row does not go to have no weight in it."""
        weights = expert_weights(
            x @ layer.weights["router"].T,
            self.n_experts_used,
            self.expert_weights_normalized,
            self.expert_weights_scale,
        )
        out = np.zeros_like(x)
        stacks = (layer.weights[name] for name in ("gates", "ups", "downs"))
        for expert, (gate, up, down) in enumerate(zip(*stacks, strict=True)):
            out += weights[:, [expert]] * ((self.activation(x @ gate.T) * (x @ up.T)) @ down.T)
        return out + self.shared_expert(layer, x) if "shared_router" in layer.weights else out

    def shared_expert(self, layer: NumpyLayer, x: Array) -> Array:
        inner = self.activation(layer.linear(x, "shared_gate")) * layer.linear(x, "shared_up")
        gates = 1 / (1 + np.exp(-(x @ layer.weights["shared_router"])))
        return gates[:, None] * layer.linear(inner, "shared_down")
