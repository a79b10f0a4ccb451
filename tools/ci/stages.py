"""The table of stages, .ci/stages.toml, and the plan of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

TIERS = ("gate", "full", "release")


@dataclass(frozen=True)
class Stage:
    """One entry of the table; the script .ci/stages/NAME.sh runs it."""

    name: str
    # What it does, for --list and for the report of a run without it.
    does: str
    # The first tier that runs it; later tiers do too.
    tier: str
    # What the gate runs of a stage of a later tier; empty if nothing.
    part: str = ""
    # The gate runs the part only if the change touches one of these files (patterns; `*` also matches `/`).
    touches: tuple[str, ...] = ()
    # The stages that must have run before it in the same tree.
    needs: tuple[str, ...] = ()

    def is_touched(self, files: Collection[str] | None) -> bool:
        """Returns whether one of these files belongs to it; None means that every file may have changed."""
        return files is None or any(fnmatchcase(file, pattern) for file in files for pattern in self.touches)


@dataclass(frozen=True)
class Planned:
    """A stage of a run: whole, or only the part that the gate runs of it."""

    stage: Stage
    is_whole: bool = True


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    tier: str
    planned: tuple[Planned, ...]
    # A line for each stage that the run leaves out, whole or in part.
    left_out: tuple[str, ...] = ()
    # The files that differ from the last full run, for the scripts of the gate; None if that is not known.
    changed: Collection[str] | None = None
    # False for a run of named stages, which decides less than a tier.
    is_tier: bool = True

    @property
    def stops_at_failure(self) -> bool:
        """Whether the stages after a failed one do not run."""
        return not self.is_tier or self.tier == "gate"

    @property
    def whole(self) -> set[str]:
        """The names of the stages that run whole."""
        return {each.stage.name for each in self.planned if each.is_whole}


def read_stages(root: Path) -> list[Stage]:
    """Returns the stages in the order of their runs."""
    table = tomllib.loads((root / ".ci" / "stages.toml").read_text())
    stages = [Stage(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in table["stage"]]
    for stage in stages:
        if stage.tier not in TIERS:
            raise ValueError(f"{stage.name}: tier {stage.tier!r}, expected one of {', '.join(TIERS)}")
    return stages


def plan_tier(stages: Sequence[Stage], tier: str, changed: Collection[str] | None) -> Plan:
    """Returns the plan of a tier; the gate adds the parts that the changed files touch."""
    reached = TIERS.index(tier)
    planned = []
    for stage in stages:
        if TIERS.index(stage.tier) <= reached:
            planned.append(Planned(stage))
        elif tier == "gate" and stage.part and stage.is_touched(changed):
            planned.append(Planned(stage, is_whole=False))
    return Plan(tier, tuple(planned), tuple(_left_out(stages, planned)), changed)


def plan_names(stages: Sequence[Stage], names: Collection[str], with_needs: bool) -> Plan:
    """Returns the plan for named stages, which run whole, and for the stages that they need if that is wanted."""
    by_name = {stage.name: stage for stage in stages}
    wanted: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += by_name[name].needs if with_needs else ()
    return Plan("full", tuple(Planned(stage) for stage in stages if stage.name in wanted), is_tier=False)


def _left_out(stages: Sequence[Stage], planned: Sequence[Planned]) -> list[str]:
    in_part = {each.stage.name: each.is_whole for each in planned}
    return [
        f"{stage.name:14} {stage.does}" + (f"; this run: {stage.part}" if stage.name in in_part else "")
        for stage in stages
        if not in_part.get(stage.name, False)
    ]
