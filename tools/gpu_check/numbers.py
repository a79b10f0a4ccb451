"""Statistics of repeated measurements, and their text form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def quantile(values: Iterable[float], q: float) -> float:
    """Returns a quantile, interpolated between the two nearest values: q = 0 is the least, 1 the greatest."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True)
class Spread:
    """The median, the 10th and the 90th percentile of seconds."""

    median: float
    p10: float
    p90: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9), len(values))

    def as_row(self) -> dict[str, float]:
        return {"median_us": 1e6 * self.median, "p10_us": 1e6 * self.p10, "p90_us": 1e6 * self.p90, "n": self.n}


def rate_text(rate: float, unit: str) -> str:
    """Returns texts such as 3012 GB/s and 612.4 TFLOP/s."""
    if unit == "GB/s":
        return f"{rate / 1e9:.0f} GB/s"
    if unit == "TFLOP/s":
        return f"{rate / 1e12:.1f} TFLOP/s"
    return f"{rate:.4g} {unit}"


def percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{100 * fraction:.0f} %"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns a table in Markdown."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
