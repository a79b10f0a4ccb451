"""Axes of a chart: the position of a value between 0 and 1, and the round values that get a grid line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` at 0 to `high` at 1; `ticks` lie between."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(values: Sequence[float], n_ticks: int = 5) -> Axis:
    """A linear axis. It begins at zero: otherwise lengths would mislead."""
    top = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(top / n_ticks))
    step = next(s * power for s in (*_STEPS, 10) if s * power * n_ticks >= top)
    count = math.ceil(top / step)
    return Axis(0.0, count * step, False, tuple(i * step for i in range(count + 1)))


def log_axis(values: Sequence[float]) -> Axis:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, for times that differ a hundredfold.

    Values are above zero.
    """
    low, high = min(values, default=1.0), max(values, default=1.0)
    rounds = [s * 10.0**p for p in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for s in _STEPS]
    first = max((r for r in rounds if r <= low), default=rounds[0])
    last = min((r for r in rounds if r >= high and r > first), default=rounds[-1])
    ticks = tuple(r for r in rounds if first <= r <= last)
    # Over many decades, the powers of ten are enough.
    return Axis(first, last, True, ticks if len(ticks) <= 8 else tuple(t for t in ticks if _is_power_of_ten(t)))


def _is_power_of_ten(value: float) -> bool:
    return abs(math.log10(value) - round(math.log10(value))) < 0.01
