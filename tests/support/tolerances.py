"""How far right results may be from float64: bounds derived from the number of terms, the terms and the types."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

# Half a unit in the last place of 1: the largest relative error of one float32 rounding.
FLOAT32_ROUNDING = float(np.finfo(np.float32).eps) / 2
FLOAT32_TINY = float(np.finfo(np.float32).tiny)

# The contracts' bound for kernels with int8 activations, of the root mean square of a row's outputs; the error is
# taken as a root mean square too. Uniform steps of (about 2.2 sigma of 32 normal values) / 127 have 0.5 %.
INT8_ACTIVATIONS_RMS = 1.5e-2


def rounding_of_sum(n_roundings: int) -> float:
    """Relative to the sum of the terms' magnitudes: what n roundings in a row can do (Higham's gamma)."""
    drift = n_roundings * FLOAT32_ROUNDING
    assert drift < 1
    return drift / (1 - drift)


def sum_of_products(x: Float64s, w: Float64s) -> Float64s:
    """For x · wᵀ with exact float32 factors and one fma per term: k roundings, and a flushed denormal for each."""
    k = x.shape[1]
    return rounding_of_sum(k) * (np.abs(x) @ np.abs(w).T) + k * FLOAT32_TINY


def sum_of_blocks(x: Float64s, w: Float64s, block: int = 32) -> Float64s:
    """For exact integer dots of blocks, each then scaled: a rounding for the product of scales, one for each fma."""
    n_blocks = x.shape[1] // block
    return rounding_of_sum(n_blocks + 1) * (np.abs(x) @ np.abs(w).T) + 2 * n_blocks * FLOAT32_TINY * 128**2 * block


def int8_activations(x: Float64s, w: Float64s, block: int = 32) -> Float64s:
    """For float activations that are quantized on the way: half a step per element, beside what the sum does.

    A step is max|x| / 127 of the block; the scale, its inverse and their product are rounded once each, which moves a
    value of up to 127 steps by less than 127 · 3 roundings.
    """
    m, k = x.shape
    largest = np.abs(x).reshape(m, k // block, block).max(axis=2)
    steps = largest / 127 * (0.5 + 127 * rounding_of_sum(3))
    weights = np.abs(w).reshape(w.shape[0], k // block, block).sum(axis=2)
    return steps @ weights.T + sum_of_blocks(x, w, block)
