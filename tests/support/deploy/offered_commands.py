"""The commands of a checkout: benches, comparisons and tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from compare import NAMES
from support.machine.command_line import FOUND_IN

ROOT = Path(__file__).resolve().parents[3]
TESTS, TOOLS = ROOT / "tests", ROOT / "tools"
COMPARE = TOOLS / "compare"


def commands() -> list[str]:
    """Returns what follows `python`: paths in the checkout, with the names of comparisons."""
    folders = [path.parent for top in (TESTS, TOOLS) for path in top.rglob("__main__.py")]
    paths = [path.relative_to(ROOT).as_posix() for path in (*folders, *TOOLS.glob("*.py"))]
    return sorted([*paths, *(f"tools/compare {name}" for name in NAMES)])


def words_of(command: str) -> list[str]:
    """Returns the words of a command, for any working directory."""
    path, *names = command.split()
    return [str(ROOT / path), *names]


def ran(
    python: Path, *words: object, home: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command, with nothing of this process but what it needs to start."""
    variables = {"HOME": str(home), "PATH": "/usr/bin:/bin", **(environment or {})}
    return subprocess.run(
        [python, *map(str, words)], env=variables, cwd=home, capture_output=True, text=True, check=False
    )


def compared(name: str, *words: object, report: Path) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Runs a comparison in this environment. Returns its process, and its JSON report."""
    command = [sys.executable, COMPARE, name, *map(str, words), "--json", report]
    environment = {**os.environ, "PYTHONPATH": str(FOUND_IN)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), run.stderr
    return run, json.loads(report.read_text())


def rectangles(svg: Path) -> int:
    """Returns the number of bars of a chart, with its ground."""
    return len(list(ElementTree.fromstring(svg.read_text()).iter("{http://www.w3.org/2000/svg}rect")))
