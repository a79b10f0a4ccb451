"""Norms, rotations and activations in float64, from their definitions."""

from __future__ import annotations

import math

import numpy as np

from support.oracles import tolerances

Array = np.ndarray


def rms_norm_oracle(x: Array, weight: Array, epsilon: float) -> Array:
    runs = x.astype(np.float64).reshape(x.shape[0], -1, weight.size)
    mean = np.mean(runs**2, axis=-1, keepdims=True)
    return (runs / np.sqrt(mean + np.float64(np.float32(epsilon))) * weight).reshape(x.shape)


def rope_oracle(x: Array, angles: Array, head_dim: int, style: str) -> tuple[Array, Array]:
    """Returns the rotated rows in float64, and a bound of their error."""
    n_pairs = angles.shape[1] // 2
    heads = x.astype(np.float64).reshape(x.shape[0], -1, head_dim)
    cos, sin = angles[:, None, :n_pairs].astype(np.float64), angles[:, None, n_pairs:].astype(np.float64)
    first = np.arange(n_pairs) * 2 if style == "adjacent" else np.arange(n_pairs)
    second = first + 1 if style == "adjacent" else first + n_pairs
    a, b = heads[..., first], heads[..., second]
    out, bound = heads.copy(), np.full_like(heads, tolerances.FLOAT32_TINY)
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    bound[..., first] = bound[..., second] = tolerances.rotation(a, b)
    return out.reshape(x.shape), bound.reshape(x.shape)


def silu_oracle(gate: Array, up: Array) -> Array:
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-gate)) * up


def gelu_oracle(gate: Array, up: Array) -> Array:
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


def gelu_erf_oracle(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def clamped_silu_oracle(gate: Array, up: Array, limit: float, slope: float) -> Array:
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-np.float64(np.float32(slope)) * gate)) * (up + 1)


def layer_norm_oracle(x: Array, weight: Array, bias: Array | None, epsilon: float) -> Array:
    wide = x.astype(np.float64)
    deviations = wide - wide.mean(axis=-1, keepdims=True)
    variance = np.mean(deviations**2, axis=-1, keepdims=True)
    normed = deviations / np.sqrt(variance + np.float64(np.float32(epsilon))) * weight
    return normed if bias is None else normed + bias


def xielu_oracle(x: Array, positive: float, negative: float, slope: float, largest: float) -> Array:
    below = negative * (np.expm1(np.minimum(x, largest)) - x)
    return np.where(x > 0, positive * x**2, below) + slope * x
