"""A collector receives spans of real calls from imp's exporter, OTLP over gRPC."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from imp_service.pb import inference_pb2 as pb
from support.run.patience import HANGS_AFTER
from support.servers.served import ask, serve


class SpanCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps every span that it receives, with the attributes of its resource."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._spans: list[tuple[dict[str, str], Span]] = []
        self._came = threading.Condition()

    def Export(  # noqa: N802
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Receives spans; the only method of OTLP."""
        with self._came:
            for group in request.resource_spans:
                resource = {pair.key: pair.value.string_value for pair in group.resource.attributes}
                self._spans += [(resource, span) for scope in group.scope_spans for span in scope.spans]
            self._came.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def wait_for(self, name: str) -> tuple[dict[str, str], Span]:
        """Waits for the first span with this name; returns its resource and the span."""
        with self._came:
            assert self._came.wait_for(lambda: any(span.name == name for _, span in self._spans), HANGS_AFTER)
            return next((resource, span) for resource, span in self._spans if span.name == name)


@contextlib.contextmanager
def span_collector() -> Iterator[SpanCollector]:
    """Yields a collector that listens until the block ends."""
    collector = SpanCollector()
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
        collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield collector
        finally:
            server.stop(0).wait()


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UNARY = "imp.v1.InferenceService/GenerateUnary"


@pytest.fixture(autouse=True)
def exported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overrides OpenTelemetry's defaults: 5 s until a span is exported, and 10 s until an export fails."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.mark.long
def test_obs_6_a_collector_gets_the_span_of_a_call_in_its_callers_trace() -> None:
    # The server samples no call without a trace: the caller decided on each span that arrives.
    with (
        span_collector() as collector,
        serve(f"tracing.endpoint={collector.endpoint}", "tracing.sample=0.0") as served,
    ):
        reply = served.inference.GenerateUnary(
            pb.GenerateUnaryRequest(request=ask("Once upon a time", 8)),
            metadata=[("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "vendor=1")],
        )
        resource, span = collector.wait_for(UNARY)
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE, PARENT, "vendor=1")
    attributes = {pair.key: pair.value for pair in span.attributes}
    assert attributes["imp.request_id"].string_value == reply.started.request_id
    assert attributes["gen_ai.usage.input_tokens"].int_value == reply.usage.prompt_tokens
    assert attributes["gen_ai.usage.output_tokens"].int_value == 8
    assert resource["service.name"] == "imp"


@pytest.mark.long
def test_obs_6_a_call_without_a_trace_begins_one() -> None:
    with (
        span_collector() as collector,
        serve(f"tracing.endpoint={collector.endpoint}", "tracing.sample=1.0") as served,
    ):
        served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=ask("a", 2)))
        _, span = collector.wait_for(UNARY)
    assert (span.parent_span_id, len(span.trace_id), span.trace_state) == (b"", 16, "")


@pytest.mark.long
def test_obs_6_a_collector_that_is_gone_holds_up_no_call() -> None:
    with span_collector() as collector:
        endpoint = collector.endpoint
    with serve(f"tracing.endpoint={endpoint}", "tracing.sample=1.0") as served:
        reply = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=ask("Once upon a time", 8)))
        assert reply.usage.output_tokens == 8
