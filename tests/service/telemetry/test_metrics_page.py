"""The metrics page: valid text without callers' data, rendered at a bounded rate."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from imp_service.config import Settings
from imp_service.telemetry.metrics_page import RENDERS_PER_SECOND, MetricsPage
from support.telemetry_bench import TelemetryBench


def test_obs_7_the_page_is_valid_text_and_there_is_no_listener_by_default(bench: TelemetryBench) -> None:
    page = MetricsPage(bench.telemetry.metrics.render, lambda: 0.0).get().decode()
    families = {family.name for family in text_string_to_metric_families(page)}
    assert {"imp_requests_started", "imp_time_to_first_token_seconds", "grpc_server_handled"} <= families
    assert Settings().listen.metrics is None


def test_w27_a_flood_of_scrapes_is_answered_from_one_page() -> None:
    now, n_renders = 0.0, 0

    def render() -> bytes:
        nonlocal n_renders
        n_renders += 1
        return f"page {n_renders}\n".encode()

    page = MetricsPage(render, lambda: now)
    flood = {page.get() for _ in range(200)}
    assert len(flood) == n_renders == RENDERS_PER_SECOND
    now += 0.1
    assert page.get() == f"page {RENDERS_PER_SECOND + 1}\n".encode()
    now += 60
    for _ in range(200):
        page.get()
    assert n_renders == RENDERS_PER_SECOND + 1 + RENDERS_PER_SECOND


def test_w27_no_secret_is_on_the_page(bench: TelemetryBench) -> None:
    """The page has no data of a caller."""
    canary = "canary-7f3a"
    record = bench.call(tenant=canary, request_id=canary)
    record.ended("INVALID_ARGUMENT", "FIELD_INVALID")
    assert canary not in bench.telemetry.metrics.render().decode()
