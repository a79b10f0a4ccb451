"""How far one distribution of the next token is from another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def divergence(exact: NDArray[np.float32], approximate: NDArray[np.float32]) -> float:
    """The Kullback-Leibler divergence of the approximate distribution from the exact one, in nats."""
    ours, theirs = (_log_probabilities(each.astype(np.float64)) for each in (exact, approximate))
    return float(np.sum(np.exp(ours) * (ours - theirs)))


def _log_probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = logits - logits.max()
    logarithm: np.float64 = np.log(np.sum(np.exp(shifted)))
    return shifted - logarithm
