"""Everything that a comparison measured, as JSON and as a chart, also where it fails halfway."""

from __future__ import annotations

import json
import os
import platform
from argparse import Namespace
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any

from compare.chart import chart
from compare.goals import Verdict
from compare.outcome import Outcome

SCHEMA = "imp.compare.v1"


class Report:
    """The results of a comparison. They are written at the end of the block; without results, files stay as they are.

    `rows` are further results: lists of JSON values by name. `facts` are what is true of all results. `left_out`:
    skipped engines with their reasons. `notes`: what restricts an engine.
    """

    def __init__(self, comparison: str, arguments: Namespace, **facts: object) -> None:
        self.facts: dict[str, object] = {"schema": SCHEMA, "comparison": comparison, **facts}
        self.rows: dict[str, list[Any]] = defaultdict(list)
        self.left_out: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.outcomes: list[Outcome] = []
        self._json: Path | None = arguments.json
        self._svg: Path | None = getattr(arguments, "svg", None)

    def add(self, outcome: Outcome, verdicts: list[Verdict]) -> None:
        """Adds a case."""
        self.outcomes.append(outcome)
        self.rows["cases"].append(outcome.as_json() | {"goals": [verdict.as_json() for verdict in verdicts]})

    def __enter__(self) -> Report:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if not self.rows:
            return
        if self._json is not None:
            told = {"machine": machine(), "complete": kind is None, "left_out": self.left_out, "notes": self.notes}
            self._json.write_text(json.dumps(self.facts | told | self.rows, indent=1) + "\n")
        if self._svg is not None:
            self._svg.write_text(chart(Path(str(self.facts["model"])).stem, self.outcomes))


def machine() -> dict[str, object]:
    """Returns the facts of this machine."""
    return {"system": platform.platform(), "processor": processor(), "load_average": os.getloadavg()}


def processor() -> str:
    """Returns the processor's name from /proc/cpuinfo."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((text.partition(": ")[2] for text in lines if text.startswith("model name")), platform.machine())
