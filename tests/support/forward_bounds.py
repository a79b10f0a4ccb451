"""Error bounds of a whole forward pass against float64, relative to the root mean square of the logits."""

from __future__ import annotations

import numpy as np

from support.tiny_models import TinyModel
from support.tolerances import BFLOAT16_ACTIVATIONS_RMS, FLOAT32_ROUNDING, INT8_ACTIVATIONS_RMS

FLOAT16_ROUNDING = float(np.finfo(np.float16).eps) / 2
# Seven products, two to six norms, attention and the activation: at most this many sums in a row per layer.
SUMS_PER_LAYER = 8


def float32_bound(model: TinyModel) -> float:
    """Roundings of a sum of k terms walk at random, by sqrt(k); norms keep the stream's size, so layers add up."""
    longest = max(model.hidden_size, model.ffn_size, model.n_heads * model.head_dim)
    return float(SUMS_PER_LAYER * (model.n_layers + 1) * np.sqrt(longest) * FLOAT32_ROUNDING)


def float16_cache_bound(model: TinyModel) -> float:
    """K, V and through the softmax K once more are off by a rounding each, in every layer."""
    return float32_bound(model) + 3 * model.n_layers * FLOAT16_ROUNDING


def float16_products_bound(model: TinyModel) -> float:
    """Inputs of products rounded to float16, and in attention queries and the softmax too: each by half of a unit."""
    return _with_activations_off(2 * FLOAT16_ROUNDING, model)


def _with_activations_off(by: float, model: TinyModel) -> float:
    """Errors of all products in a row are independent: they add up as squares."""
    return float(by * np.sqrt(SUMS_PER_LAYER * model.n_layers + 1)) + float16_cache_bound(model)


def bfloat16_activations_bound(model: TinyModel) -> float:
    """Inputs of products rounded to bfloat16."""
    return _with_activations_off(BFLOAT16_ACTIVATIONS_RMS, model)


def int8_activations_bound(model: TinyModel) -> float:
    """Inputs of products quantized to int8."""
    return _with_activations_off(INT8_ACTIVATIONS_RMS, model)
