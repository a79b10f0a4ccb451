"""Spans: one per call, in the caller's trace, with its usage. Without tracing nothing is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from imp_service.config import ConfigError
from imp_service.config.server_settings import TracingSettings
from imp_service.telemetry import Telemetry
from imp_service.telemetry.telemetry import make_tracer
from imp_service.telemetry.tracing import Tracer
from support.servers.telemetry_bench import GENERATE, GET_LOAD, Spent, TelemetryBench, Used

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ENDPOINT = "http://127.0.0.1:4317"


class Traced:
    """A telemetry that keeps its spans in memory."""

    def __init__(self, sample: float = 1.0) -> None:
        self.exporter = InMemorySpanExporter()
        self.bench = TelemetryBench(tracer=Tracer(TracingSettings(endpoint=ENDPOINT, sample=sample), self.exporter))

    @property
    def telemetry(self) -> Telemetry:
        return self.bench.telemetry


def test_obs_6_a_request_is_one_span_in_the_callers_trace() -> None:
    traced = Traced()
    record = traced.telemetry.call(
        GENERATE.path, "r-1", "blue", "peer", f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1"
    )
    record.started(12, 8)
    traced.bench.now += 0.5
    record.sampled(3, traced.bench.now)
    record.finished(["stop"], Used(12, 8, 3), Spent())
    record.ended("OK")
    traced.telemetry.close()
    (span,) = traced.exporter.get_finished_spans()
    assert span.name == "imp.v1.InferenceService/Generate"
    assert span.kind is SpanKind.SERVER
    assert span.parent is not None  # narrows the type
    assert f"{span.context.trace_id:032x} {span.parent.span_id:016x}" == f"{TRACE} {PARENT}"
    assert span.parent.is_remote
    assert dict(span.context.trace_state) == {"vendor": "1"}
    assert dict(span.attributes or {}) == {
        "rpc.system": "grpc",
        "rpc.service": "imp.v1.InferenceService",
        "rpc.method": "Generate",
        "rpc.response.status_code": "OK",
        "imp.request_id": "r-1",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "imp.cached_prompt_tokens": 8,
        "gen_ai.response.finish_reasons": ("stop",),
        "imp.time_to_first_token": 0.5,
    }
    assert span.resource.attributes["service.name"] == "imp"


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{TRACE}-{PARENT}", "00-" + "0" * 32 + f"-{PARENT}-01"])
def test_obs_6_without_a_good_parent_a_trace_begins_here(traceparent: str) -> None:
    traced = Traced()
    traced.telemetry.call(GET_LOAD.path, "r", "", "", traceparent).ended("OK")
    (span,) = traced.exporter.get_finished_spans()
    assert span.parent is None
    assert f"{span.context.trace_id:032x}" != TRACE


def test_obs_6_a_failure_is_reported_by_its_reason() -> None:
    traced = Traced()
    traced.telemetry.call(GENERATE.path, "r", "", "").ended("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    (span,) = traced.exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "QUEUE_FULL")
    assert (span.attributes or {})["error.type"] == "QUEUE_FULL"


def test_obs_6_sampling_is_for_calls_without_a_trace() -> None:
    traced = Traced(sample=0.0)
    traced.telemetry.call(GENERATE.path, "a", "", "").ended("OK")
    traced.telemetry.call(GENERATE.path, "b", "", "", f"00-{TRACE}-{PARENT}-01").ended("OK")
    traced.telemetry.call(GENERATE.path, "c", "", "", f"00-{TRACE}-{PARENT}-00").ended("OK")
    found = [(span.attributes or {})["imp.request_id"] for span in traced.exporter.get_finished_spans()]
    assert found == ["b"]


def test_obs_6_configured_without_the_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the exporter were not installed.
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"tracing\.endpoint: .*the extra `otel`") as error:
        make_tracer(TracingSettings(endpoint=ENDPOINT))
    assert error.value.reason == "CONFIG_INVALID"


def test_obs_6_off_imports_nothing() -> None:
    program = (
        "import sys\n"
        "from imp_service.config import Settings\n"
        "from imp_service.telemetry import Telemetry\n"
        "Telemetry(Settings()).close()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
