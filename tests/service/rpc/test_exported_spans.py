"""A collector receives spans of real calls from imp's exporter, OTLP over gRPC."""

from __future__ import annotations

import pytest

from imp_service.pb import inference_pb2 as pb
from support.served import ask, serve
from support.span_collector import span_collector

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
