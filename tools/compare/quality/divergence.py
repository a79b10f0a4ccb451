"""Kullback-Leibler divergence of next-token distributions from a reference, with spreads from resampling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from compare.quality.rows import Rows

Values = NDArray[np.float64]

# Neighbouring positions share their context, so they are drawn in blocks.
BLOCK = 16
N_DRAWS = 2000
# Few rows at a time, so that float64 copies of large vocabularies stay small.
ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class Figure:
    """A statistic, and the interval that contains 95 of 100 resamplings of the positions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Divergences:
    """The divergence of an engine at each position in nats, and whether its best token is the reference's."""

    nats: Values
    agrees: NDArray[np.bool_]

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The statistics by name."""
        statistics: dict[str, tuple[Values, Callable[[Values], float]]] = {
            "mean": (self.nats, lambda values: float(np.mean(values))),
            "median": (self.nats, lambda values: float(np.median(values))),
            "p99": (self.nats, lambda values: float(np.quantile(values, 0.99))),
            "same_top": (self.agrees.astype(np.float64), lambda values: float(np.mean(values))),
        }
        return {
            name: resampled(lambda drawn, of=of, values=values: of(values[drawn]), len(self.nats))
            for name, (values, of) in statistics.items()
        }

    def ratio(self, other: Divergences) -> Figure:
        """Returns the ratio of the means, both over the same draws of positions."""
        return resampled(lambda drawn: float(self.nats[drawn].mean() / other.nats[drawn].mean()), len(self.nats))


@dataclass(frozen=True)
class Scale:
    """The factor of all logits of all engines, which acts like a temperature."""

    factor: float
    entropy: float  # entropy of the reference after scaling

    @classmethod
    def of(cls, reference: Sequence[Rows], entropy: float | None) -> Scale:
        """Returns the scale that gives the reference this entropy; without an entropy, factor 1."""
        sample = np.concatenate([rows[::8] for rows in reference])
        if entropy is None:
            return cls(1.0, mean_entropy(sample, 1.0))
        low, high = 0.01, 100.0
        for _ in range(24):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if mean_entropy(sample, middle) > entropy else (low, middle)
        return cls(middle, mean_entropy(sample, middle))


def divergences(reference: Sequence[Rows], rows: Iterable[Rows], scale: Scale) -> Divergences:
    """Returns the divergences at all positions of all sequences."""
    nats, agrees = [], []
    for expected, got in zip(reference, rows, strict=True):
        for at in range(0, len(expected), ROWS_AT_ONCE):
            true, found = (part[at : at + ROWS_AT_ONCE] for part in (expected, got))
            log_p, log_q = (log_softmax(part, scale.factor) for part in (true, found))
            nats.append((np.exp(log_p) * (log_p - log_q)).sum(axis=-1))
            agrees.append(true.argmax(axis=-1) == found.argmax(axis=-1))
    return Divergences(np.concatenate(nats), np.concatenate(agrees))


def mean_entropy(rows: Rows, factor: float) -> float:
    """Returns the mean entropy in nats."""
    total = 0.0
    for at in range(0, len(rows), ROWS_AT_ONCE):
        log_p = log_softmax(rows[at : at + ROWS_AT_ONCE], factor)
        total -= float((np.exp(log_p) * log_p).sum())
    return total / len(rows)


def log_softmax(rows: Rows, factor: float) -> Values:
    """Returns log-probabilities in float64."""
    scaled = factor * rows.astype(np.float64)
    scaled -= scaled.max(axis=-1, keepdims=True)
    scaled -= np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    return scaled


def resampled(statistic: Callable[[NDArray[np.intp]], float], n_positions: int) -> Figure:
    """Returns the statistic of all positions, and its interval over draws of as many blocks of positions."""
    blocks = [np.arange(at, min(at + BLOCK, n_positions)) for at in range(0, n_positions, BLOCK)]
    random = np.random.default_rng(0)
    draws = (np.concatenate([blocks[i] for i in random.integers(0, len(blocks), len(blocks))]) for _ in range(N_DRAWS))
    low, high = np.quantile([statistic(drawn) for drawn in draws], (0.025, 0.975))
    return Figure(statistic(np.arange(n_positions)), float(low), float(high))
