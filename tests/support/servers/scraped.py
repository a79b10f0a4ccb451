"""The metrics of a server in this process, as a scraper reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from support.servers.served import Served


def series_of(text: str) -> dict[str, float]:
    """Returns every sample by its name followed by its labels: name[key=value]."""
    return {
        sample.name + "".join(f"[{key}={value}]" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(served: Served) -> dict[str, float]:
    """Returns the current samples."""
    return series_of(served.call(served.state.telemetry.metrics.render).decode())


def outcomes(series: dict[str, float]) -> dict[str, float]:
    """Returns the number of ended requests by outcome."""
    start = "imp_requests_ended_total[outcome="
    return {name.removeprefix(start).rstrip("]"): n for name, n in series.items() if name.startswith(start)}
