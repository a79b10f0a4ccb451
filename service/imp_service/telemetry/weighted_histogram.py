"""A histogram that takes several equal observations at once, since tokens come in batches."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


def buckets_of(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative buckets for the exposition; the last of `counts` is above every bound."""
    names = [*map(floatToGoString, bounds), "+Inf"]
    return [(name, float(total)) for name, total in zip(names, accumulate(counts), strict=True)]


class WeightedHistogram(Collector):
    """One thread writes. Another thread may read: the count is the sum of the buckets that it sees."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self._counts)

    def observe(self, value: float, n: int = 1) -> None:
        """Adds `n` observations of `value`."""
        self._counts[bisect_left(self._bounds, value)] += n
        self._sum += value * n

    def describe(self) -> Iterable[Metric]:
        """The family without values."""
        return [HistogramMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterable[Metric]:
        """The current values."""
        buckets = buckets_of(self._bounds, self._counts)
        return [HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)]
