"""The bench of the front end runs and measures every figure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import FOUND_IN

BENCH = Path(__file__).with_name("front_end")


@pytest.mark.long
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="the server has a core of its own, and its client another")
def test_hon_15_the_bench_of_the_front_end_measures_every_figure(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    parts = [word for part in ("tokens", "requests", "memory", "sessions") for word in ("--only", part)]
    command = [sys.executable, str(BENCH), "--quick", *parts, "--json", str(report)]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(FOUND_IN)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = {figure["name"]: figure for figure in json.loads(report.read_text())["figures"]}
    assert len(figures) == 4 * (3 + 3 + 2 + 2) + (4 * (3 + 3) + 2 * 3) + (3 + 1 + 2) + 4
    assert [name for name, figure in figures.items() if "memory" not in name and not figure["median"] > 0] == []
    # Each stream has a message for its start or end; every other message has one or more tokens.
    assert figures["message size, 64 streams, 1 a message, HTTP"]["max"] < 1
    assert figures["open at once, of 100 with a lease of 4 s"]["median"] > 1
