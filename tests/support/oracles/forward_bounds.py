"""Error bounds of a whole forward pass against float64, relative to the root mean square of the logits."""

from __future__ import annotations

import numpy as np

from support.models.tiny_models import TinyModel
from support.oracles.tolerances import BFLOAT16_ACTIVATIONS_RMS, FLOAT32_ROUNDING, INT8_ACTIVATIONS_RMS

FLOAT16_ROUNDING = float(np.finfo(np.float16).eps) / 2
# Seven products, two to six norms, attention and the activation: at most this many sums in a row per layer.
SUMS_PER_LAYER = 8
# Linear attention divides q, k and each head of its output by their lengths. Heads of a tiny model have few elements,
# so that some are short: a rounding of the embedding moves these logits 20 to 90 times as far as those of others.
LINEAR_ENLARGES = 5


def float32_bound(model: TinyModel) -> float:
    """Bounds float32 roundings: those of k terms add up as sqrt(k); norms keep the stream's size, so layers add up."""
    longest = max(model.hidden_size, model.ffn_size, model.n_heads * model.head_dim)
    enlarged = LINEAR_ENLARGES if model.family.linear_period else 1
    return float(enlarged * SUMS_PER_LAYER * (model.n_layers + 1) * np.sqrt(longest) * FLOAT32_ROUNDING)


def float16_cache_bound(model: TinyModel) -> float:
    """Adds three roundings per layer: of K, of V, and of K again through the softmax."""
    return float32_bound(model) + 3 * model.n_layers * FLOAT16_ROUNDING


def float16_products_bound(model: TinyModel) -> float:
    """Bounds inputs of products rounded to float16; in attention, queries and softmax weights are rounded too."""
    return _with_activations_off(2 * FLOAT16_ROUNDING, model)


def _with_activations_off(by: float, model: TinyModel) -> float:
    """Adds the errors of successive products as squares, because they are independent."""
    return float(by * np.sqrt(SUMS_PER_LAYER * model.n_layers + 1)) + float16_cache_bound(model)


def bfloat16_activations_bound(model: TinyModel) -> float:
    """Bounds inputs of products rounded to bfloat16."""
    return _with_activations_off(BFLOAT16_ACTIVATIONS_RMS, model)


def int8_activations_bound(model: TinyModel) -> float:
    """Bounds inputs of products quantized to int8."""
    return _with_activations_off(INT8_ACTIVATIONS_RMS, model)
