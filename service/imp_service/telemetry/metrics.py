"""Every metric of a server, in a registry of its own: names, meanings and buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from imp_service.api.resume import MISMATCHES
from imp_service.telemetry.engine_numbers import EngineCollector
from imp_service.telemetry.exposition import exposition
from imp_service.telemetry.method import Method
from imp_service.telemetry.weighted_histogram import WeightedHistogram

if TYPE_CHECKING:
    from imp_service._core import EngineStats

# In seconds: from a tiny model to a request in a long queue.
FIRST_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
INTER_TOKEN_BOUNDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.015,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.25,
    0.5,
    1.0,
    5.0,
)
REQUEST_BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
METHOD_LABELS = ("grpc_type", "grpc_service", "grpc_method")
OUTCOMES = ("finished", "refused", "failed", "timed_out", "cancelled")


class DroppedLines(Collector):
    """Log lines that were not written, read at each scrape."""

    def __init__(self, n_dropped: Callable[[], Mapping[str, int]]) -> None:
        self._n_dropped = n_dropped

    def collect(self) -> Iterator[Metric]:
        """The current values."""
        text = "Log lines not written: too many of a kind, too many waiting, or writing failed."
        family = CounterMetricFamily("imp_log_lines_dropped", text, labels=["cause"])
        for cause, n in self._n_dropped().items():
            family.add_metric([cause], n)
        yield family


class Metrics:
    """The series that calls write to; those of the engine are read from it at each scrape.

    Labels come from the descriptors, the error table and the configuration alone, never from a client.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._declare_requests()
        self._declare_tokens()
        self._declare_calls()
        self.stalled = self._counter("imp_requests_stalled", "Requests that the watchdog ended.")
        self._cache_trial = Gauge(
            "imp_kv_trial",
            "What the cache's types change at the start's trial: a divergence in nats, a share of equal top tokens.",
            ("kind",),
            registry=self.registry,
        )
        self._model = Info("imp_model", "The model that is served.", registry=self.registry)

    def _declare_requests(self) -> None:
        self.started = self._counter("imp_requests_started", "Requests begun: calls of methods that use the model.")
        self.ended = self._counter(
            "imp_requests_ended",
            "Requests ended, by outcome; with the active ones they add up to those started.",
            ("outcome",),
        )
        for outcome in OUTCOMES:
            self.ended.labels(outcome)
        self.active = Gauge("imp_requests_active", "Requests begun and not ended.", registry=self.registry)
        self.finish = self._counter("imp_request_finish", "Sequences ended, by finish reason.", ("reason",))
        self.errors = self._counter("imp_errors", "Calls that ended with a status other than OK.", ("code", "reason"))
        self.request_seconds = self._histogram("imp_request_seconds", "Whole requests.", REQUEST_BOUNDS)
        self.queue_seconds = self._histogram(
            "imp_queue_seconds", "From admission to the first step.", FIRST_TOKEN_BOUNDS
        )

    def _declare_tokens(self) -> None:
        self.prompt_tokens = self._counter(
            "imp_prompt_tokens", "Prompt tokens of requests, by where their keys and values came from.", ("kind",)
        )
        self.prompt_computed = self.prompt_tokens.labels("computed")
        self.prompt_cached = self.prompt_tokens.labels("cached")
        # What resumed requests evaluate besides their prompt: outputs that their callers have, and the prompt for each
        # further sequence.
        self.prompt_recomputed = self.prompt_tokens.labels("recomputed")
        self.resumed = self._counter("imp_resumed", "Requests that went on with the outputs of a stream that broke.")
        self.resume_mismatch = self._counter(
            "imp_resume_mismatch", "Requests that could not, by what differed from the stream's server.", ("differs",)
        )
        for what in MISMATCHES:
            self.resume_mismatch.labels(what)
        self.sparse_prefill = self._counter(
            "imp_sparse_prefill",
            "Prompts for which sparse prefill was asked for, by what was done and why it was not sparse.",
            ("effective", "reason"),
        )
        self.output_tokens = self._counter("imp_output_tokens", "Tokens generated for callers.")
        self.embedded_inputs = self._counter(
            "imp_embedded_inputs", "Texts whose vectors, and pairs of texts whose scores were returned."
        )
        self.embedded_tokens = self._counter("imp_embedded_tokens", "Tokens of these texts and pairs.")
        self.undecoded_images = self._counter(
            "imp_media_decode_failures", "Requests with an image that could not be decoded, though its header was read."
        )
        self.first_token = self._weighted(
            "imp_time_to_first_token_seconds", "From a call's start to its first output token.", FIRST_TOKEN_BOUNDS
        )
        self.inter_token = self._weighted(
            "imp_inter_token_seconds",
            "Between output tokens; of a session's step, its duration. Counts every output token but first ones.",
            INTER_TOKEN_BOUNDS,
        )

    def _declare_calls(self) -> None:
        self.grpc_started = self._counter("grpc_server_started", "Calls started.", METHOD_LABELS)
        self.grpc_handled = self._counter("grpc_server_handled", "Calls completed.", (*METHOD_LABELS, "grpc_code"))
        self.grpc_handling = self._histogram(
            "grpc_server_handling_seconds", "Calls, from start to status.", REQUEST_BOUNDS, METHOD_LABELS
        )
        self.http_handled = self._counter(
            "imp_http_requests", "Requests over HTTP that were answered.", ("path", "code")
        )
        self.http_handling = self._histogram(
            "imp_http_request_seconds", "Requests over HTTP, from start to end.", REQUEST_BOUNDS, ("path",)
        )

    def add_method(self, method: Method) -> None:
        """Shows a method's series from the start, so that a rate over them has a first value."""
        if method.is_http:
            self.http_handled.labels(method.name, "OK")
        else:
            self.grpc_started.labels(method.type, method.service, method.name)
            self.grpc_handled.labels(method.type, method.service, method.name, "OK")

    def call_started(self, method: Method) -> None:
        """Counts the start of a call."""
        if not method.is_http:
            self.grpc_started.labels(method.type, method.service, method.name).inc()

    def call_ended(self, method: Method, code: str, seconds: float) -> None:
        """Counts the end of a call, with the name of a gRPC code."""
        if method.is_http:
            self.http_handled.labels(method.name, code).inc()
            self.http_handling.labels(method.name).observe(seconds)
        else:
            labels = (method.type, method.service, method.name)
            self.grpc_handled.labels(*labels, code).inc()
            self.grpc_handling.labels(*labels).observe(seconds)

    def set_model(self, facts: Mapping[str, str]) -> None:
        """Says what is served: the labels of imp_model_info."""
        self._model.info(dict(facts))

    def set_cache_trial(self, divergence: float, same_top: float) -> None:
        """Says what the trial of the cache's types found."""
        self._cache_trial.labels("divergence").set(divergence)
        self._cache_trial.labels("same_top").set(same_top)

    def watch_engine(self, numbers: Callable[[], EngineStats | None], block_tokens: int) -> None:
        """Adds the engine's series. `block_tokens` are those of a KV block. Called once."""
        self.registry.register(EngineCollector(numbers, block_tokens))

    def watch_log(self, n_dropped: Callable[[], Mapping[str, int]]) -> None:
        """Adds the count of lines that were not written. Called once."""
        self.registry.register(DroppedLines(n_dropped))

    def render(self) -> bytes:
        """All series as Prometheus text."""
        return exposition(self.registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(name, text, labels, buckets=bounds, registry=self.registry)

    def _weighted(self, name: str, text: str, bounds: tuple[float, ...]) -> WeightedHistogram:
        histogram = WeightedHistogram(name, text, bounds)
        self.registry.register(histogram)
        return histogram
