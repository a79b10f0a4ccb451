"""Rotary positions in float64, from the definition of each scaling."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class NumpyRope:
    """Rotary frequencies. Pair i at position p has the angle p * frequencies[i]; magnitude scales sine and cosine."""

    frequencies: Array
    magnitude: float = 1.0
    adjacent: bool = False
    planes: tuple[int, ...] = ()  # of each pair, if positions are [planes, n]

    def rotate(self, heads: Array, positions: Array) -> Array:
        """Rotates heads [n, n_heads, head_dim] at positions [n]. Dimensions beyond the pairs do not change."""
        n_pairs = len(self.frequencies)
        of_pairs = positions[list(self.planes)].T if self.planes else positions[:, None]
        angles = of_pairs[:, None, :] * self.frequencies
        cos, sin = self.magnitude * np.cos(angles), self.magnitude * np.sin(angles)
        first = slice(0, 2 * n_pairs, 2) if self.adjacent else slice(0, n_pairs)
        second = slice(1, 2 * n_pairs, 2) if self.adjacent else slice(n_pairs, 2 * n_pairs)
        out = heads.copy()
        out[..., first] = heads[..., first] * cos - heads[..., second] * sin
        out[..., second] = heads[..., second] * cos + heads[..., first] * sin
        return out


def plain(dims: int, theta: float) -> Array:
    return np.float64(theta) ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)


def linear(dims: int, theta: float, factor: float) -> Array:
    return plain(dims, theta) / factor


def yarn(  # the paper's "NTK by parts"
    dims: int,
    theta: float,
    factor: float,
    original_context: int,
    *,
    beta_fast: float = 32,
    beta_slow: float = 1,
    truncated: bool = True,
    mscales: tuple[float, float] = (1, 0),
) -> tuple[Array, float]:
    """Returns YaRN. `truncated` rounds the ramp to whole pairs; `mscales` give the magnitude and its divisor."""

    def pair_with_turns(turns: float) -> float:
        return dims * np.log(original_context / (turns * 2 * np.pi)) / (2 * np.log(theta))

    low, high = pair_with_turns(beta_fast), pair_with_turns(beta_slow)
    if truncated:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low or 1e-3), 0, 1)
    base = plain(dims, theta)
    magnitude, divisor = (0.1 * mscale * np.log(factor) + 1 for mscale in mscales)
    return base / factor * ramp + base * (1 - ramp), float(magnitude / divisor)


def llama3(dims: int, theta: float, factor: float, original_context: int, *, low: float = 1, high: float = 4) -> Array:
    base = plain(dims, theta)
    wavelengths = 2 * np.pi / base
    smooth = (original_context / wavelengths - low) / (high - low)
    mixed = (1 - smooth) * base / factor + smooth * base
    scaled = np.where(wavelengths > original_context / low, base / factor, mixed)
    return np.where(wavelengths < original_context / high, base, scaled)
