"""Spans of calls: one each, joined to the caller's trace, sent to an OpenTelemetry collector.

OpenTelemetry is imported only if tracing is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from imp_service import __version__
from imp_service.config import ConfigError
from imp_service.config.server_settings import TracingSettings
from imp_service.telemetry.call_record import CallFacts

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

EXTRA = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc, the extra `otel`"
SHUTDOWN_MS = 2000


class Tracer:
    """Starts and ends spans. A thread of OpenTelemetry exports them from a bounded queue."""

    def __init__(self, settings: TracingSettings, exporter: SpanExporter | None = None) -> None:
        """Raises ConfigError if OpenTelemetry is not installed. `exporter` gets each span as it ends."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            processor = (
                BatchSpanProcessor(_exporter_to(settings.endpoint or ""))
                if exporter is None
                else SimpleSpanProcessor(exporter)
            )
        except ImportError as error:
            message = f"set, but {error.name or 'opentelemetry'} is not installed; {EXTRA}"
            raise ConfigError("tracing.endpoint", message) from None
        # Not the global provider: that belongs to the host process.
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample)),
            resource=Resource.create({"service.name": "imp", "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("imp_service")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, traceparent: str, tracestate: str) -> Callable[[CallFacts], None]:
        """Starts a span; returns a function that ends it with the facts of the call."""
        from opentelemetry.trace import SpanKind

        carrier = {"traceparent": traceparent, "tracestate": tracestate} if traceparent else {}
        context = self._propagator.extract(carrier)
        span = self._tracer.start_span(method.removeprefix("/"), context, kind=SpanKind.SERVER)
        return lambda facts: _end(span, facts)

    def close(self) -> None:
        """Sends queued spans, for at most SHUTDOWN_MS."""
        self._provider.force_flush(SHUTDOWN_MS)
        self._provider.shutdown()


def _end(span: Span, facts: CallFacts) -> None:
    from opentelemetry.trace import Status, StatusCode

    if span.is_recording():
        span.set_attributes(
            {
                **_of_transport(facts),
                "imp.request_id": facts.request_id,
                "gen_ai.usage.input_tokens": facts.n_prompt,
                "gen_ai.usage.output_tokens": facts.n_output,
                "imp.cached_prompt_tokens": facts.n_cached,
            }
        )
        if facts.reasons:
            span.set_attribute("gen_ai.response.finish_reasons", facts.reasons)
        if facts.first_token_seconds is not None:
            span.set_attribute("imp.time_to_first_token", facts.first_token_seconds)
        if facts.code != "OK":
            span.set_attribute("error.type", facts.reason or facts.code)
            span.set_status(Status(StatusCode.ERROR, facts.reason or facts.code))
    span.end()


def _exporter_to(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
    return exporter


def _of_transport(facts: CallFacts) -> dict[str, str]:
    """The attributes that name what was called."""
    if facts.method.is_http:
        return {"http.route": facts.method.name, "imp.code": facts.code}
    return {
        "rpc.system": "grpc",
        "rpc.service": facts.method.service,
        "rpc.method": facts.method.name,
        "rpc.response.status_code": facts.code,
    }
