"""The dashboard queries only what a server exports, and shows all of imp's metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from support.engine_numbers import Graphs, Numbers
from support.telemetry_bench import Spent, TelemetryBench, Used

DASHBOARD = Path(__file__).resolve().parents[3] / "conf" / "grafana" / "imp.json"
METRIC = re.compile(r"\b(?:imp|grpc_server)_[a-z_]+\b")
LABELS = re.compile(r"by \(([a-z_, ]+)\)|\{\{([a-z_]+)\}\}")
# Labels that every scrape adds, or that histogram_quantile needs.
OF_OTHERS = {"job", "instance", "le"}


def exported(bench: TelemetryBench) -> dict[str, set[str]]:
    """Returns the labels of each sample name, from a server that has recorded every kind of event."""
    bench.telemetry.metrics.watch_engine(lambda: Numbers(graphs=Graphs()), 16)
    bench.telemetry.set_model("tiny", architecture="qwen3")
    record = bench.call()
    record.started(2, 1)
    record.finished(["stop"], Used(2, 1, 0), Spent())
    record.ended("INTERNAL", "BUG")
    return {name.split("[")[0]: set(re.findall(r"\[(\w+)=", name)) for name in bench.series()}


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
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported(bench) if name.startswith("imp_")}
    assert sorted(name for name in families if name not in text) == []


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
