"""All that was measured so far, as JSON and as a chart: what ends a comparison late takes nothing of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare_peers.chart import chart
from bench.compare_peers.goals import scaling, start_verdicts, verdicts
from bench.compare_peers.outcome import Outcome, Start
from bench.front_end.__main__ import processor


@dataclass
class Report:
    """Of one model over all numbers of threads; `left_out` has the reason of each engine that is."""

    model: Path
    starts: list[Start] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False

    def write(self, numbers: Path | None, bars: Path | None) -> None:
        """Into the files that are named; what was there is kept where nothing was measured."""
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
