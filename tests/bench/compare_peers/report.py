"""Everything measured so far, as JSON and as a chart. A failure late in a comparison loses nothing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare_peers.chart import chart
from bench.compare_peers.goals import scaling, start_verdicts, verdicts
from bench.compare_peers.outcome import Outcome, Start
from bench.machine import processor


@dataclass
class Report:
    """The results of one model at all numbers of threads. `left_out`: skipped engines with their reasons."""

    model: Path
    starts: list[Start] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False

    def write(self, numbers: Path | None, bars: Path | None) -> None:
        """Writes the named files. Without results it keeps the existing files."""
        if not self.starts:
            return
        if numbers is not None:
            numbers.write_text(json.dumps(self._as_json(), indent=1) + "\n")
        if bars is not None:
            bars.write_text(chart(self.model.stem, self.outcomes))

    def _as_json(self) -> dict[str, object]:
        return {
            "schema": "imp.compare_peers.v1",
            "model": self.model.name,
            "machine": {"processor": processor(), "load_average": os.getloadavg()},
            "complete": self.is_complete,
            "left_out": self.left_out,
            "starts": [
                start.as_json() | {"goals": [verdict.as_json() for verdict in start_verdicts(start)]}
                for start in self.starts
            ],
            "scaling": [verdict.as_json() for verdict in scaling(self.outcomes)],
            "cases": [
                outcome.as_json() | {"goals": [verdict.as_json() for verdict in verdicts(outcome)]}
                for outcome in self.outcomes
            ],
        }
