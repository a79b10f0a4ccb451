"""The metrics, their page and the dashboard: read at a bounded rate, valid as text, with the names of the contracts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from imp_service.config import Settings
from imp_service.telemetry import Method
from imp_service.telemetry.front_metrics import FrontCollector, FrontNumbers
from imp_service.telemetry.metrics_page import RENDERS_PER_SECOND, MetricsPage
from support.engine.engine_numbers import Durations, Graphs, Numbers
from support.servers.telemetry_bench import Sparse, Spent, TelemetryBench, Used

ROOT = Path(__file__).resolve().parents[3]
OVER_HTTP = Method("", "/v1/models", "unary")


def test_obs_7_there_are_no_engine_series_before_there_is_an_engine(bench: TelemetryBench) -> None:
    bench.telemetry.metrics.watch_engine(lambda: None, 16)
    assert [name for name in bench.series() if "kv" in name or "running" in name] == []


def test_obs_7_numbers_are_those_of_the_moment(bench: TelemetryBench) -> None:
    numbers = Numbers(running=3, waiting=2, blocks_live=30, blocks_cached=10, blocks_free=60, n_preemptions=4)
    bench.telemetry.metrics.watch_engine(lambda: numbers, 16)
    first = bench.series()
    numbers.running, numbers.silence_ns = 1, 2_500_000_000
    second = bench.series()
    assert (first["imp_requests_running"], second["imp_requests_running"]) == (3, 1)
    assert (first["imp_engine_silence_seconds"], second["imp_engine_silence_seconds"]) == (0, 2.5)
    assert first["imp_requests_waiting"] == 2
    assert [first[f"imp_kv_blocks[state={state}]"] for state in ("live", "cached", "free")] == [30, 10, 60]
    assert first["imp_kv_cache_usage_ratio"] == pytest.approx(0.3)
    assert first["imp_preemptions_total"] == 4
    assert first["imp_cache_config_info[block_size=16][num_gpu_blocks=100]"] == 1


def test_obs_7_a_model_with_a_recurrent_state_has_series_of_its_slots(bench: TelemetryBench) -> None:
    numbers = Numbers()
    bench.telemetry.metrics.watch_engine(lambda: numbers, 16)
    assert [name for name in bench.series() if "state_slots" in name] == []
    numbers.states_held, numbers.states_kept, numbers.states_free = 3, 5, 1
    series = bench.series()
    assert [series[f"imp_state_slots[use={use}]"] for use in ("held", "snapshot", "free")] == [3, 5, 1]


def test_obs_7_captures_are_reported_where_steps_are_captured(bench: TelemetryBench) -> None:
    numbers = Numbers()
    bench.telemetry.metrics.watch_engine(lambda: numbers, 16)
    assert [name for name in bench.series() if "graph" in name] == []
    numbers.graphs = Graphs(captures=5, failures=2)
    series = bench.series()
    assert series["imp_graph_captures_total"] == 5
    assert series["imp_graph_capture_failures_total"] == 2


def test_obs_9_durations_of_the_core_become_buckets(bench: TelemetryBench) -> None:
    """Two steps below 1 ms, one of 3 ms, one of a minute."""
    counts = [0] * 25
    for us in (500, 900, 3000, 60_000_000):
        counts[min(us.bit_length(), 24)] += 1
    bench.telemetry.metrics.watch_engine(lambda: Numbers(steps=Durations(counts, 60_004_400_000)), 16)
    series = bench.series()
    buckets = {
        float(name.split("le=")[1].rstrip("]")): value
        for name, value in series.items()
        if name.startswith("imp_step_seconds_bucket")
    }
    bounds = sorted(buckets)
    assert [round(bound * 1e6) for bound in bounds[:-1]] == [4**i for i in range(12)]
    assert [buckets[bound] for bound in bounds] == [0] * 5 + [2] + [3] * 6 + [4]
    assert series["imp_step_seconds_count"] == 4
    assert series["imp_step_seconds_sum"] == pytest.approx(60.0044)
    assert series["imp_cancel_to_free_seconds_count"] == 0


def test_obs_7_the_table_of_the_documentation_names_every_metric_of_imp(bench: TelemetryBench) -> None:
    section = (ROOT / "docs" / "serving.md").read_text().split("\n## Metrics, log and traces\n")[1].split("\n## ")[0]
    named = re.findall(r"`(imp_[a-z_]+)", section)
    assert len(named) == len(set(named)) > 20
    assert set(named) == {family for family in families(bench) if family.startswith("imp_")}


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


DASHBOARD = ROOT / "conf" / "grafana" / "imp.json"
METRIC = re.compile(r"\b(?:imp|grpc_server)_[a-z_]+\b")
LABELS = re.compile(r"by \(([a-z_, ]+)\)|\{\{([a-z_]+)\}\}")
# Labels that every scrape adds, or that histogram_quantile needs.
OF_OTHERS = {"job", "instance", "le"}


def exported(bench: TelemetryBench) -> dict[str, set[str]]:
    """Returns the labels of each sample name, from a server that has recorded every kind of event."""
    bench.telemetry.metrics.watch_engine(lambda: Numbers(graphs=Graphs(), states_free=2), 16)
    bench.telemetry.set_model("tiny", architecture="qwen3")
    bench.telemetry.metrics.set_cache_trial(0.02, 0.95)
    record = bench.call()
    record.started(2, 1, Sparse())
    record.finished(["stop"], Used(2, 1, 0), Spent())
    record.ended("INTERNAL", "BUG")
    bench.telemetry.add_method(OVER_HTTP)
    bench.call(OVER_HTTP).ended("OK")
    found = {name.split("[")[0]: set(re.findall(r"\[(\w+)=", name)) for name in bench.series()}
    front = FrontCollector(lambda: FrontNumbers({}, {}, 0, 0, {"ready": 1}, {"waiting": 0}))
    return found | {sample.name: set(sample.labels) for family in front.collect() for sample in family.samples}


def families(bench: TelemetryBench) -> set[str]:
    """Returns the names of the metrics: a histogram has several samples."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported(bench)}


def queries() -> list[tuple[str, str]]:
    """Returns each expression with its legend."""
    dashboard = json.loads(DASHBOARD.read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    variables: list[dict[str, Any]] = [each for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return [(target["expr"], target["legendFormat"]) for target in targets] + [
        (variable["query"]["query"], "") for variable in variables
    ]


def test_every_metric_of_the_dashboard_is_exported(bench: TelemetryBench) -> None:
    series = exported(bench)
    asked = {name for expression, _ in queries() for name in METRIC.findall(expression)}
    assert len(asked) >= 20
    assert sorted(asked - series.keys()) == []


def test_every_label_of_the_dashboard_is_on_its_metric(bench: TelemetryBench) -> None:
    series = exported(bench)
    for expression, legend in queries():
        labels = {word for found in LABELS.findall(expression + legend) for word in re.findall(r"\w+", "".join(found))}
        of_metrics = set().union(*(series[name] for name in METRIC.findall(expression)))
        assert labels - OF_OTHERS <= of_metrics, expression


def test_no_metric_of_imp_is_left_out(bench: TelemetryBench) -> None:
    text = " ".join(expression for expression, _ in queries())
    of_imp = {family for family in families(bench) if family.startswith("imp_")}
    assert sorted(of_imp - set(METRIC.findall(re.sub(r"_(bucket|sum|count)\b", "", text)))) == []


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
