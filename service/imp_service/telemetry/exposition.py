"""Writes the series of a registry as the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


def exposition(collector: CollectorRegistry | Collector) -> bytes:
    """All series of a collector."""
    return generate_latest(_Exported(collector))


class _Exported(Collector):
    """A collector without the _created samples, which would double the size of the page."""

    def __init__(self, collector: CollectorRegistry | Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        for metric in self._collector.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
