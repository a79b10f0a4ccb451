"""The bench of the front end runs and measures every figure."""

import os
from pathlib import Path

import pytest

from support.deploy.offered_commands import compared


@pytest.mark.long
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="the server has a core of its own, and its client another")
def test_hon_15_the_bench_of_the_front_end_measures_every_figure(tmp_path: Path) -> None:
    parts = [word for part in ("tokens", "requests", "memory", "sessions", "relay") for word in ("--only", part)]
    _, report = compared("front_end", "--quick", *parts, report=tmp_path / "report.json")
    assert report["complete"]
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert len(figures) == 4 * (3 + 3 + 2 + 2) + (4 * (3 + 3) + 2 * 3) + (3 + 1 + 2) + 4 + (5 + 3)
    assert [name for name, figure in figures.items() if "memory" not in name and not figure["median"] > 0] == []
    # Each stream has a message for its start or end; every other message has one or more tokens.
    assert figures["message size, 64 streams, 1 a message, HTTP"]["max"] < 1
    assert figures["open at once, of 100 with a lease of 4 s"]["median"] > 1
