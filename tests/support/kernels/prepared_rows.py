"""Decodes rows of activations in the formats that the GPU's kernels read."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
TILE, BLOCK = 256, 32
FORMATS = ["q8_rows", "f16_rows", "f16_even_odd", "bf16_rows"]


def padded(k: int) -> int:
    return -(-k // TILE) * TILE


def int8_parts(rows: Array, k: int) -> tuple[Array, Array, Array]:
    """Returns the codes, the scales and the sums of each half of a block of q8_rows."""
    n = padded(k)
    assert rows.shape[1] == n + n // BLOCK * 8
    blocks = np.ascontiguousarray(rows[:, n:]).reshape(len(rows), -1, 8)
    return (
        rows[:, :n].view(np.int8),
        blocks[:, :, :4].copy().view(np.float32)[:, :, 0],
        blocks[:, :, 4:].copy().view(np.int16),
    )


def float16_parts(rows: Array, k: int, name: str = "f16_rows") -> tuple[Array, Array]:
    """Returns the float16 values, in the order of x, and the factor of each row of f16_rows or f16_even_odd."""
    n = padded(k)
    assert rows.shape[1] == 2 * n + 16
    halves = np.ascontiguousarray(rows[:, : 2 * n]).view(np.float16)
    if name == "f16_even_odd":
        halves = halves.reshape(len(rows), -1, 2, 8).transpose(0, 1, 3, 2).reshape(len(rows), n)
    return halves, np.ascontiguousarray(rows[:, 2 * n : 2 * n + 4]).view(np.float32)[:, 0]


def bfloat16_values(rows: Array, k: int) -> Array:
    """Returns the values of bf16_rows."""
    assert rows.shape[1] == 2 * padded(k)
    return (np.ascontiguousarray(rows).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
