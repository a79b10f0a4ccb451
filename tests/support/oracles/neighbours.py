"""The nearest neighbours of vectors among themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.floating]


def cosines(ours: Vectors, theirs: Vectors) -> NDArray[np.float64]:
    """Returns the cosine of each vector and its counterpart."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    lengths: NDArray[np.float64] = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / lengths


def neighbours(vectors: Vectors, n: int = 10) -> NDArray[np.intp]:
    """Returns the numbers of the n vectors nearest to each, the nearest first."""
    wide = np.asarray(vectors, np.float64)
    similarities = wide @ wide.T
    np.fill_diagonal(similarities, -np.inf)
    return np.argsort(-similarities, axis=1, kind="stable")[:, :n]


def kept(ours: Vectors, theirs: Vectors, n: int = 10) -> float:
    """Returns the share of the n nearest neighbours that are the same."""
    pairs = zip(neighbours(ours, n), neighbours(theirs, n), strict=True)
    return float(np.mean([len(np.intersect1d(a, b)) / n for a, b in pairs]))
