"""The rotated cache types from their definition: signs, Walsh-Hadamard transforms, and codes with a search of scales.

Sums have the order of the kernels, so that codes are equal to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

BLOCK = 32
MOST = 128  # elements of a group
WIDTHS = (0.8, 0.9, 1.0, 1.1)


@dataclass(frozen=True)
class Rotated:
    """A rotated type: its levels in 127ths of the greatest, and one level's size in standard deviations.

    A type without a unit has equally spaced levels, of which the greatest is the block's greatest value.
    """

    levels: tuple[int, ...]
    unit: float = 0


ROTATED = {
    "rot8": Rotated(tuple(range(-127, 128))),
    "rot4": Rotated((-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127), 0.02151646),
    "rot3": Rotated((-127, -79, -45, -14, 14, 45, 79, 127), 0.01694446),
    "rot2": Rotated((-127, -38, 38, 127), 0.01189305),
}


def splitmix64(seed: int) -> int:
    """Returns the first number that the generator draws with this seed."""
    mask = 2**64 - 1
    x = (seed + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def signs(which: int, n: int) -> Array:
    """Returns the first n signs before (1) or after (2) the transform."""
    return np.float32([-1 if splitmix64(MOST * which + i) >> 63 else 1 for i in range(n)])


def group_of(head_dim: int) -> int:
    return min(MOST, head_dim & -head_dim)


def transform(x: Array) -> Array:
    """Returns the unnormalized Walsh-Hadamard transform of the last axis."""
    n, distance, out = x.shape[-1], 1, x.copy()
    while distance < n:
        pairs = out.reshape(*x.shape[:-1], n // (2 * distance), 2, distance)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        out = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        distance *= 2
    return out


def rotate(x: Array, head_dim: int, *, back: bool = False) -> Array:
    """Rotates the heads of rows, in the type of x."""
    n = group_of(head_dim)
    before, after = (signs(i, n).astype(x.dtype) for i in ((2, 1) if back else (1, 2)))
    groups = x.reshape(*x.shape[:-1], -1, n)
    factor = x.dtype.type(1 / np.sqrt(n))
    return (transform(groups * before) * factor * after).reshape(x.shape)


def fold(x: Array) -> Array:
    """Returns the sum over blocks of 32, in the kernels' order."""
    x = x[..., :16] + x[..., 16:]
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x


def codes_of(turned: Array, kind: Rotated) -> tuple[Array, Array]:
    """Returns the codes and float16 scales of rotated rows, by block. A code is the place of its level."""
    x = turned.astype(np.float32).reshape(*turned.shape[:-1], -1, BLOCK)
    if not kind.unit:
        codes, scales = q8_0_blocks(x)
        return codes.astype(np.int16) + 127, scales
    levels = np.float32(kind.levels)
    borders = ((levels[1:] + levels[:-1]) / 2)[len(levels) // 2 :]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = fold(x * x)
        deviation = np.sqrt(squares / np.float32(BLOCK))
        best = np.zeros_like(squares)
        scale, codes = np.zeros_like(squares), np.zeros(x.shape, np.uint8)
        for width in WIDTHS:
            unit = np.float32(width) * np.float32(kind.unit)
            scaled = x * (np.float32(1) / (deviation * unit))
            above = np.searchsorted(borders, np.abs(scaled), side="right")
            half = len(levels) // 2
            found = np.where(scaled < 0, half - 1 - above, half + above).astype(np.uint8)
            product = fold(x * levels[found])
            closeness = product * product / fold(levels[found] * levels[found])
            is_better = closeness > best
            best = np.where(is_better, closeness, best)
            scale = np.where(is_better, squares / product, scale)
            codes = np.where(is_better, found, codes)
        scales = np.where(np.isfinite(deviation), scale, np.nan).astype(np.float16)
    return codes, np.where(np.isfinite(scales), scales, np.float16(np.nan))


def q8_0_blocks(blocks: Array) -> tuple[Array, Array]:
    """Returns q8_0 codes and float16 scales. The largest code of a block is 127; 0 without a finite scale."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scales = (np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)).astype(np.float16)
        codes = np.rint(np.clip(blocks * (np.float32(1) / scales.astype(np.float32)), -127, 127))
    return np.where((scales > 0) & np.isfinite(scales), codes, 0).astype(np.int8), scales


def decoded(codes: Array, scales: Array, kind: Rotated) -> Array:
    """Returns the rotated rows that codes stand for, in float64."""
    values = np.float64(kind.levels)[codes] * scales.astype(np.float64)
    return values.reshape(*values.shape[:-2], -1)
