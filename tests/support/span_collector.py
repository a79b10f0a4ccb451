"""A collector of spans over OpenTelemetry's protocol (OTLP), with gRPC on a free port."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.patience import HANGS_AFTER


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
