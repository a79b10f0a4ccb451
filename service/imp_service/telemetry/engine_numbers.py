"""The engine's counters as metrics, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from imp_service.telemetry.weighted_histogram import buckets_of

if TYPE_CHECKING:
    from imp_service._core import DurationHistogram, EngineStats

NS = 1e-9


def n_blocks(numbers: EngineStats) -> int:
    """All KV blocks."""
    return numbers.blocks_live + numbers.blocks_cached + numbers.blocks_free


def kv_usage(numbers: EngineStats) -> float:
    """The fraction of KV blocks that sequences hold. Cached blocks count as free, since they can be evicted."""
    total = n_blocks(numbers)
    return numbers.blocks_live / total if total else 0.0


class EngineCollector(Collector):
    """Reads `numbers` at each scrape. Exports nothing before the engine exists."""

    def __init__(self, numbers: Callable[[], EngineStats | None], block_tokens: int) -> None:
        self._numbers = numbers
        self._block_tokens = block_tokens

    def describe(self) -> list[Metric]:
        """Empty: the series depend on the engine."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The current values."""
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
        states = {"held": numbers.states_held, "snapshot": numbers.states_kept, "free": numbers.states_free}
        if any(states.values()):  # no series for a model without recurrent state
            slots = GaugeMetricFamily("imp_state_slots", "Slots of recurrent state by use.", labels=["use"])
            for use, n_slots in states.items():
                slots.add_metric([use], n_slots)
            yield slots
        yield self._cache_config(numbers)
        yield GaugeMetricFamily(
            "imp_kv_cache_usage_ratio", "Share of KV blocks that sequences hold.", value=kv_usage(numbers)
        )
        preempted = "Preempted sequences, which are computed again."
        yield CounterMetricFamily("imp_preemptions", preempted, value=numbers.n_preemptions)
        yield from self._media(numbers)
        yield from self._speculation(numbers)
        silent = "Time since the engine's last progress; 0 while it has no work."
        yield GaugeMetricFamily("imp_engine_silence_seconds", silent, value=numbers.silence_ns * NS)
        if numbers.graphs is not None:  # no series on a device without step graphs
            captured = "Steps captured as graphs for replay, one for each batch size."
            yield CounterMetricFamily("imp_graph_captures", captured, value=numbers.graphs.captures)
            failed = "Failed captures; such steps are launched op by op."
            yield CounterMetricFamily("imp_graph_capture_failures", failed, value=numbers.graphs.failures)
        yield histogram("imp_step_seconds", "Engine steps.", numbers.steps)
        freed = "Time from the command that cancels a run until its blocks are free."
        yield histogram("imp_cancel_to_free_seconds", freed, numbers.cancels)

    @staticmethod
    def _media(numbers: EngineStats) -> Iterator[Metric]:
        encoded = "Images, or tiles of them, that the vision tower encoded."
        yield CounterMetricFamily("imp_media_encoded", encoded, value=numbers.n_encoded)
        spent = "Time of encoding them."
        yield CounterMetricFamily("imp_media_encode_seconds", spent, value=numbers.encode_ns * NS)
        found = "Images, or tiles of them, whose encoding was kept from an earlier prompt."
        yield CounterMetricFamily("imp_media_cache_hits", found, value=numbers.n_found)
        yield GaugeMetricFamily("imp_media_cache_bytes", "Encodings that are kept.", value=numbers.media_bytes)

    @staticmethod
    def _speculation(numbers: EngineStats) -> Iterator[Metric]:
        rounds = "Steps of a sequence that verified guesses."
        yield CounterMetricFamily("imp_spec_rounds", rounds, value=numbers.drafts.n_rounds)
        drafted = CounterMetricFamily("imp_spec_drafted", "Guesses that the model verified.", labels=["drafter"])
        accepted = CounterMetricFamily("imp_spec_accepted", "Guesses that were right.", labels=["drafter"])
        for name, drafts in numbers.drafters.items():
            drafted.add_metric([name], drafts.n_drafted)
            accepted.add_metric([name], drafts.n_accepted)
        skipped = CounterMetricFamily(
            "imp_spec_skipped", "Steps of a sequence that may draft and verified no guess.", labels=["reason"]
        )
        for reason, n_skips in numbers.draft_skips.items():
            skipped.add_metric([reason], n_skips)
        yield from (drafted, accepted, skipped)
        spent = "Time of making guesses and choosing how many to verify."
        yield CounterMetricFamily("imp_spec_draft_seconds", spent, value=numbers.draft_ns * NS)

    def _cache_config(self, numbers: EngineStats) -> Metric:
        # The labels are those that endpoint pickers look for, whatever the device.
        sizes = {"block_size": self._block_tokens, "num_gpu_blocks": n_blocks(numbers)}
        config = GaugeMetricFamily("imp_cache_config_info", "Tokens of a KV block, and blocks.", labels=list(sizes))
        config.add_metric([str(size) for size in sizes.values()], 1)
        return config


def histogram(name: str, text: str, durations: DurationHistogram) -> HistogramMetricFamily:
    """Exports every second power of two as a bound."""
    counts = durations.counts
    n_finite = len(counts) - 1
    bounds = [2**i * 1e-6 for i in range(0, n_finite, 2)]
    merged = [counts[0], *(counts[i - 1] + counts[i] for i in range(2, n_finite, 2))]
    merged.append(sum(counts) - sum(merged))
    return HistogramMetricFamily(name, text, buckets=buckets_of(bounds, merged), sum_value=durations.sum_ns * NS)
