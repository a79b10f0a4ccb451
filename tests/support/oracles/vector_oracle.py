"""The vectors that a script model makes of texts, and the last arithmetic of them, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from support.oracles.script_oracle import MASK64, mix

Vector = NDArray[np.float32]


def hash_vector(tokens: Sequence[int], width: int, second_text: int = -1) -> list[float]:
    """Returns what the script model pools: a hash of all tokens and their types."""
    state = 0
    for position, token in enumerate(tokens):
        token_type = 1 if 0 <= second_text <= position else 0
        state = mix(state ^ (token + 1) ^ (token_type << 40))
    return [(mix((state + i) & MASK64) >> 40) / (1 << 21) - 4 for i in range(width)]


def finished(values: Sequence[float], dimensions: int = 0, *, normalized: bool = True) -> Vector:
    """Cuts the vector, and divides it by its length. Python computes in double; float32 rounds once."""
    kept = list(values)[: dimensions or len(values)]
    length = math.sqrt(left_sum([value * value for value in kept]))
    if normalized and length > 0:
        kept = [value / length for value in kept]
    return np.array(kept, dtype=np.float32)


def left_sum(values: Sequence[float]) -> float:
    """Returns the sum in order. Python's own sum() compensates."""
    total = 0.0
    for value in values:
        total += value
    return total
