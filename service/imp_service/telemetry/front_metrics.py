"""The metrics of a front: streams that went on, deaths of its engine process, and the servers behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# Why a stream went on: its server ended, did not answer, or said that it leaves.
RESUME_CAUSES = ("ended", "silent", "left")
# How an engine process ended: by a fault, a hang, a kill for memory, or by others.
DEATH_CAUSES = ("fault", "hang", "memory", "other")


@dataclass(frozen=True, slots=True)
class FrontNumbers:
    """What a front has counted, and what it has now."""

    resumed: Mapping[str, int]
    deaths: Mapping[str, int]
    n_lost: int
    n_unresumable: int
    # By state.
    upstreams: Mapping[str, int]
    calls: Mapping[str, int]


class FrontCollector(Collector):
    """The series, read from the front at each scrape."""

    def __init__(self, numbers: Callable[[], FrontNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """The current values."""
        now = self._numbers()
        yield _labelled(
            CounterMetricFamily("imp_front_resumed", "Streams that had begun and went on, by why.", labels=["cause"]),
            {cause: now.resumed.get(cause, 0) for cause in RESUME_CAUSES},
        )
        yield CounterMetricFamily("imp_front_lost", "Answers that had begun and have no rest.", now.n_lost)
        yield CounterMetricFamily(
            "imp_front_unresumable", "Streams that are relayed, but could not go on.", now.n_unresumable
        )
        yield _labelled(
            CounterMetricFamily("imp_front_deaths", "Ends of the engine process, by how.", labels=["cause"]),
            {cause: now.deaths.get(cause, 0) for cause in DEATH_CAUSES},
        )
        yield _labelled(
            GaugeMetricFamily("imp_front_upstreams", "Servers behind the front.", labels=["state"]), now.upstreams
        )
        yield _labelled(
            GaugeMetricFamily("imp_front_calls", "Calls that wait for a server, or have one.", labels=["state"]),
            now.calls,
        )


def _labelled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, int]) -> Metric:
    for label, value in values.items():
        family.add_metric([label], value)
    return family
