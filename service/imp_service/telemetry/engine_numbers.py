"""The engine's own counters as metrics, read when they are asked for: nothing is polled and nothing is kept twice."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from imp_service.telemetry.weighted_histogram import buckets_of

NS = 1e-9


class Durations(Protocol):
    """The core's DurationHistogram: counts[i] lie from 2^(i-1) up to 2^i microseconds, the last above."""

    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def sum_ns(self) -> int: ...


class StepGraphs(Protocol):
    """The core's StepGraphCounts."""

    @property
    def captures(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def last_failure(self) -> str:
        """The device's word for it; empty where none failed."""


class EngineNumbers(Protocol):
    """What is read of the core's EngineStats."""

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
    def silence_ns(self) -> int: ...
    @property
    def graphs(self) -> StepGraphs | None: ...
    @property
    def steps(self) -> Durations: ...
    @property
    def cancels(self) -> Durations: ...


def kv_usage(numbers: EngineNumbers) -> float:
    """Share of KV blocks that sequences hold; what is cached can be had at once, and counts as free."""
    total = numbers.blocks_live + numbers.blocks_cached + numbers.blocks_free
    return numbers.blocks_live / total if total else 0.0


class EngineCollector(Collector):
    """Reads `numbers` at each scrape; there are no engine series before there is an engine."""

    def __init__(self, numbers: Callable[[], EngineNumbers | None]) -> None:
        self._numbers = numbers

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the engine."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families as they are now."""
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
        preempted = "Sequences put back to be computed again."
        yield CounterMetricFamily("imp_preemptions", preempted, value=numbers.n_preemptions)
        silent = "How long the engine has been at what it is doing; 0 while there is nothing to do."
        yield GaugeMetricFamily("imp_engine_silence_seconds", silent, value=numbers.silence_ns * NS)
        if numbers.graphs is not None:  # what the device does not do has no series
            captured = "Steps captured, to be done again: one for each batch size that was met."
            yield CounterMetricFamily("imp_graph_captures", captured, value=numbers.graphs.captures)
            failed = "Captures that came to nothing; such steps are launched op by op."
            yield CounterMetricFamily("imp_graph_capture_failures", failed, value=numbers.graphs.failures)
        yield histogram("imp_step_seconds", "Engine steps.", numbers.steps)
        freed = "From the command that cancels a run to its blocks being free."
        yield histogram("imp_cancel_to_free_seconds", freed, numbers.cancels)


def histogram(name: str, text: str, durations: Durations) -> HistogramMetricFamily:
    """Every second power of two is a bound: they tell apart enough."""
    counts = durations.counts
    n_finite = len(counts) - 1
    bounds = [2**i * 1e-6 for i in range(0, n_finite, 2)]
    merged = [counts[0], *(counts[i - 1] + counts[i] for i in range(2, n_finite, 2))]
    merged.append(sum(counts) - sum(merged))
    return HistogramMetricFamily(name, text, buckets=buckets_of(bounds, merged), sum_value=durations.sum_ns * NS)
