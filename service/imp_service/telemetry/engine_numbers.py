"""The engine's own counters as metrics, read when they are asked for: nothing is polled and nothing is kept twice."""

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

NS = 1e-9


class EngineNumbers(Protocol):
    """What is read of the core's EngineStats."""

    @property
    def n_steps(self) -> int: ...
    @property
    def n_preemptions(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def blocks_live(self) -> int: ...
    @property
    def blocks_cached(self) -> int: ...
    @property
    def blocks_free(self) -> int: ...
    @property
    def step_ns(self) -> int: ...


def kv_usage(numbers: EngineNumbers) -> float:
    """Share of KV blocks that sequences hold; what is cached can be had at once, and counts as free."""
    total = numbers.blocks_live + numbers.blocks_cached + numbers.blocks_free
    return numbers.blocks_live / total if total else 0.0


class EngineCollector(Collector):
    """Reads `numbers` at each scrape; there are no engine series before there is an engine."""

    def __init__(self, numbers: Callable[[], EngineNumbers | None], silence: Callable[[], float]) -> None:
        self._numbers = numbers
        self._silence = silence

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the engine."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families as they are now."""
        yield GaugeMetricFamily(
            "imp_engine_silence_seconds",
            "Time since the last step while there was work; 0 while there is none.",
            value=self._silence(),
        )
        numbers = self._numbers()
        if numbers is None:
            return
        yield GaugeMetricFamily("imp_requests_running", "Sequences in the batch.", value=numbers.running)
        yield GaugeMetricFamily("imp_requests_waiting", "Runs that wait for their first step.", value=numbers.waiting)
        blocks = GaugeMetricFamily("imp_kv_blocks", "KV blocks by state.", labels=["state"])
        blocks.add_metric(["live"], numbers.blocks_live)
        blocks.add_metric(["cached"], numbers.blocks_cached)
        blocks.add_metric(["free"], numbers.blocks_free)
        yield blocks
        yield GaugeMetricFamily(
            "imp_kv_cache_usage_ratio", "Share of KV blocks that sequences hold.", value=kv_usage(numbers)
        )
        yield SummaryMetricFamily(
            "imp_step_seconds", "Engine steps.", count_value=numbers.n_steps, sum_value=numbers.step_ns * NS
        )
        yield CounterMetricFamily(
            "imp_preemptions", "Sequences put back to be computed again.", value=numbers.n_preemptions
        )
