"""A decoder-only transformer in float64, written from the definitions: the oracle of whole forward passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from support.oracles.numpy_rope import NumpyRope
from support.oracles.recurrence_oracles import DeltaOracle, short_conv_oracle

Array = NDArray[np.float64]


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def clamped_silu(gate: Array, up: Array, limit: float = 7.0, slope: float = 1.702) -> Array:
    gate = np.minimum(gate, limit)
    return gate / (1 + np.exp(-slope * gate)) * (np.clip(up, -limit, limit) + 1)


def relu_squared(x: Array) -> Array:
    return np.maximum(x, 0) ** 2


def xielu(x: Array, alpha_p: float, alpha_n: float, beta: float, eps: float) -> Array:
    """Both slopes are stored before softplus."""
    above = np.log1p(np.exp(alpha_p)) * x**2
    below = (beta + np.log1p(np.exp(alpha_n))) * (np.expm1(np.minimum(x, eps)) - x)
    return np.where(x > 0, above, below) + beta * x


def soft_cap(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap) if cap else x


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def layer_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return rms_norm(x - x.mean(axis=-1, keepdims=True), weight, epsilon)


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
    activation: Callable[[Array], Array] = silu
    head_dim: int = 0  # 0: the model's
    gated: Callable[[Array, Array], Array] | None = None  # of experts, instead of the activation
    delta: DeltaOracle | None = None  # of linear attention
    sees_ahead: bool = False

    def linear(self, x: Array, name: str) -> Array:
        out = x @ self.weights[name].T
        return out + self.weights[name + "_bias"] if name + "_bias" in self.weights else out

    def bias(self, name: str, expert: int) -> Array | float:
        return self.weights[f"{name}_bias"][expert] if f"{name}_bias" in self.weights else 0.0


@dataclasses.dataclass
class NumpyTransformer:
    embedding: Array  # [vocab, hidden]
    layers: Sequence[NumpyLayer]
    final_norm: Array
    head: Array  # [vocab, hidden]
    head_dim: int
    epsilon: float
    attention_scale: float
    norms: Callable[[Array, Array, float], Array] = rms_norm  # of the stream
    final_norm_bias: Array | None = None
    rotates_before_norm: bool = False  # of q and k
    parallel_blocks: bool = False  # both halves of a layer read the same norm
    query_growth: float = 0.0
    query_period: int = 1
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    n_experts_used: int = 0
    expert_weights_normalized: bool = True
    expert_weights_scale: float = 1.0
    stored: Callable[[Array], Array] = lambda x: x  # what the cache makes of a key or value
    ends: Sequence[int] = ()  # behind the last row that each row sees, in layers that see ahead

    def logits(self, tokens: Sequence[int], positions: Sequence[int] | Array | None = None) -> Array:
        """[len(tokens), vocab]: all positions (ascending; from 0 where not given) at once, nothing cached."""
        positions = np.asarray(range(len(tokens)) if positions is None else positions, np.float64)
        x = self.embedding[list(tokens)] * self.embedding_scale
        for layer in self.layers:
            x = self.through(layer, x, positions)
        normed = self.norms(x, self.final_norm, self.epsilon)
        if self.final_norm_bias is not None:
            normed = normed + self.final_norm_bias
        logits = normed @ self.head.T * self.logit_scale
        return soft_cap(logits, self.logit_soft_cap)

    def through(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        """The stream after a layer."""
        normed = self.norm(layer, x, "attention_norm")
        attended = self.attention(layer, normed, positions)
        if self.parallel_blocks:
            return x + (attended + self.feed_forward(layer, normed)) * self.residual_scale
        x = x + self.norm(layer, attended, "post_attention_norm") * self.residual_scale
        fed = self.feed_forward(layer, self.norm(layer, x, "ffn_norm"))
        return x + self.norm(layer, fed, "post_ffn_norm") * self.residual_scale

    def norm(self, layer: NumpyLayer, x: Array, name: str) -> Array:
        if name not in layer.weights:
            return x
        normed = self.norms(x, layer.weights[name], self.epsilon)
        return normed + layer.weights[f"{name}_bias"] if f"{name}_bias" in layer.weights else normed

    def linear_attention(self, layer: NumpyLayer, delta: DeltaOracle, x: Array) -> Array:
        taps = layer.weights["conv"].T
        before = np.zeros((len(taps) - 1, taps.shape[1]))
        mixed = short_conv_oracle(np.concatenate([before, layer.linear(x, "linear_qkv")]), taps)
        read, *_ = delta.run(mixed, layer.linear(x, "steps"), layer.linear(x, "strengths"))
        heads = read.reshape(len(x), *delta.state.shape[::2])
        normed = rms_norm(heads, layer.weights["linear_norm"], self.epsilon).reshape(len(x), -1)
        return layer.linear(normed * silu(layer.linear(x, "linear_gate")), "output")

    def attention(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        if layer.delta is not None:
            return self.linear_attention(layer, layer.delta, x)
        q = self.rotated_heads(layer, x, "q", positions)
        k, v = self.keys_values(layer, x, positions)
        growth = self.query_growth * np.log(1 + np.floor(np.atleast_2d(positions)[0] / self.query_period))
        q = q * (1 + growth[:, None, None])
        k, v = (np.repeat(self.stored(heads), q.shape[1] // k.shape[1], axis=1) for heads in (k, v))
        scores = soft_cap(np.einsum("qhd,khd->hqk", q, k) * self.attention_scale, self.attention_soft_cap)
        cells = positions if positions.ndim == 1 else np.arange(len(x))
        distance = cells[:, None] - cells[None, :]
        is_before_end = cells[None, :] < np.array(self.ends)[:, None] if layer.sees_ahead else False
        seen = ((distance >= 0) | is_before_end) & ((distance < layer.window) if layer.window else True)
        scores = np.where(seen, scores, -np.inf)
        greatest = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - greatest)
        of_sinks = np.exp(layer.weights["sinks"][:, None, None] - greatest) if "sinks" in layer.weights else 0
        weights /= weights.sum(axis=-1, keepdims=True) + of_sinks
        attended = np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1)
        if "output_gate" in layer.weights:
            attended = attended / (1 + np.exp(-layer.linear(x, "output_gate")))
        return layer.linear(attended, "output")

    def keys_values(self, layer: NumpyLayer, x: Array, positions: Array) -> tuple[Array, Array]:
        v = layer.linear(x, "v").reshape(len(x), -1, self.head_dim)
        return self.rotated_heads(layer, x, "k", positions), v

    def rotated_heads(self, layer: NumpyLayer, x: Array, name: str, positions: Array) -> Array:
        """q or k. The norm is over each head, with one weight or a weight of each; or over the whole width."""
        rows = layer.linear(x, name)
        head_dim = layer.head_dim or self.head_dim
        heads = rows.reshape(len(x), -1, head_dim)
        weight = layer.weights.get(f"{name}_norm")
        if weight is None:
            return layer.rope.rotate(heads, positions)
        if weight.ndim == 2:
            return layer.rope.rotate(self.norms(heads, weight, self.epsilon), positions)
        if self.rotates_before_norm:
            return rms_norm(layer.rope.rotate(heads, positions), weight, self.epsilon)
        if len(weight) == head_dim:
            return layer.rope.rotate(rms_norm(heads, weight, self.epsilon), positions)
        return layer.rope.rotate(rms_norm(rows, weight, self.epsilon).reshape(heads.shape), positions)

    def feed_forward(self, layer: NumpyLayer, x: Array) -> Array:
        if "router" in layer.weights:
            return self.experts(layer, x)
        if "gate" not in layer.weights:
            return layer.linear(layer.activation(layer.linear(x, "up")), "down")
        return layer.linear(layer.activation(layer.linear(x, "gate")) * layer.linear(x, "up"), "down")

    def experts(self, layer: NumpyLayer, x: Array) -> Array:
        """Every expert sees every row; those that a row does not go to have no weight in it."""
        out = self.mixed(layer, x, self.weights_of_experts(layer, x))
        return out + self.shared_expert(layer, x) if "shared_gate" in layer.weights else out

    def weights_of_experts(self, layer: NumpyLayer, x: Array) -> Array:
        return expert_weights(
            layer.linear(x, "router"),
            self.n_experts_used,
            self.expert_weights_normalized,
            self.expert_weights_scale,
        )

    def mixed(self, layer: NumpyLayer, x: Array, weights: Array) -> Array:
        out = np.zeros_like(x)
        stacks = (layer.weights[name] for name in ("gates", "ups", "downs"))
        for expert, (gate, up, down) in enumerate(zip(*stacks, strict=True)):
            gates, ups = x @ gate.T + layer.bias("gates", expert), x @ up.T + layer.bias("ups", expert)
            inner = layer.gated(gates, ups) if layer.gated else layer.activation(gates) * ups
            out += weights[:, [expert]] * (inner @ down.T + layer.bias("downs", expert))
        return out

    def shared_expert(self, layer: NumpyLayer, x: Array) -> Array:
        inner = layer.activation(layer.linear(x, "shared_gate")) * layer.linear(x, "shared_up")
        if "shared_router" not in layer.weights:
            return layer.linear(inner, "shared_down")
        gates = 1 / (1 + np.exp(-(x @ layer.weights["shared_router"])))
        return gates[:, None] * layer.linear(inner, "shared_down")
