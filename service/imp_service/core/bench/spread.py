"""Medians and extremes of repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """All measurements of one quantity, in the order of taking."""

    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Iterable[float]) -> Spread:
        """Of at least one measurement."""
        return cls(tuple(samples))

    @property
    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        return statistics.median(self.samples)

    @property
    def least(self) -> float:
        """The smallest."""
        return min(self.samples)

    @property
    def most(self) -> float:
        """The largest."""
        return max(self.samples)

    def as_json(self) -> dict[str, object]:
        """The summary and what it is of."""
        return {"median": self.median, "min": self.least, "max": self.most, "samples": list(self.samples)}
