"""The command line of .ci/run: chooses the stages, runs them in order, and reports."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ci import changes, report
from ci.runner import Ended, Interrupted, Workplace, run_stage
from ci.skips import undecided
from ci.stages import TIERS, Plan, Planned, Stage, plan_names, plan_tier, read_stages


def main(words: Sequence[str], root: Path) -> int:
    """Runs the checks; returns the exit status."""
    stages = read_stages(root)
    options = _options(words, stages)
    if options.list:
        print("\n".join(f"{stage.tier:8} {stage.name:14} {stage.does}" for stage in stages))
        return 0
    names = options.what or ["gate"]
    if names[0] not in TIERS:
        return Run(root, plan_names(stages, names, options.needs)).run()
    tier = names[0]
    changed = changes.changed_files(root, changes.base_commit(root)) if tier == "gate" else None
    return Run(root, plan_tier(stages, tier, changed)).run()


def _options(words: Sequence[str], stages: Sequence[Stage]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=".ci/run",
        description="runs the checks of a change: the gate, all of them (full), or more repetitions (release)",
    )
    names = [stage.name for stage in stages]
    parser.add_argument("what", nargs="*", metavar="NAME", help=f"a tier, {', '.join(TIERS)}, or stages (default gate)")
    parser.add_argument("--list", action="store_true", help="list the stages, each with the first tier that runs it")
    parser.add_argument("--needs", action="store_true", help="run the stages that the named ones need, too")
    options = parser.parse_args(words)
    if unknown := [name for name in options.what if name not in (*TIERS, *names)]:
        parser.error(f"no stage {unknown[0]}; `.ci/run --list` names them")
    if len(options.what) > 1 and any(name in TIERS for name in options.what):
        parser.error("name one tier or some stages")
    return options


class Run:
    """One run of some stages."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self._place = Workplace(root, plan.tier)
        self._plan = plan
        self._ended: list[Ended] = []
        self._began = time.time()

    def run(self) -> int:
        """Runs the stages; returns the exit status. The gate stops at a failure, the longer tiers find all of them."""
        self._prepare()
        failed: list[Ended] = []
        absent: list[str] = []  # these did not run, because a stage that they need failed
        for planned in self._plan.planned:
            if {*absent, *(ended.name for ended in failed)}.intersection(planned.stage.needs):
                absent.append(planned.stage.name)
                continue
            ended = self._run_stage(planned)
            self._ended.append(ended)
            if not ended.passed:
                failed.append(ended)
                self._say(*report.failure(self._place, ended))
                if ended.is_interrupted or self._plan.stops_at_failure:
                    return self._close(1)
        if not failed:
            return self._close(self._judge())
        self._section("seconds of each stage", report.times(self._ended, time.time() - self._began))
        self._say("", *report.failures(self._place, failed, absent))
        return self._close(1)

    def _run_stage(self, planned: Planned) -> Ended:
        began = time.time()
        try:
            return run_stage(self._place, planned)
        except Interrupted as interrupted:
            why = f"interrupted by {interrupted}"
            return Ended(planned.stage.name, began, time.time() - began, 1, why=why, is_interrupted=True)

    def _prepare(self) -> None:
        shutil.rmtree(self._place.folder, ignore_errors=True)
        self._place.reports.mkdir(parents=True)
        self._place.log.touch()
        if self._plan.changed is not None:
            self._place.changed.write_text("".join(f"{path}\n" for path in sorted(self._plan.changed)))
        for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(which, _interrupt)

    def _judge(self) -> int:
        """Reports a run whose stages all passed; returns the exit status."""
        lines, problems = undecided(self._place.root, self._place.reports, self._plan.whole)
        self._section("tests that were skipped, and why", lines)
        self._section("left to later tiers", self._plan.left_out)
        self._section("tests that failed, and passed when they ran again alone", report.second_tries(self._place))
        self._section("seconds of each stage", report.times(self._ended, time.time() - self._began))
        if self._plan.is_tier and problems:
            self._section("FAILED: skipped tests that this run should have decided", problems)
            return 1
        if self._plan.is_tier and self._plan.tier != "gate":
            self._record()
        return 0

    def _record(self) -> None:
        """Writes down that all checks passed at this commit."""
        path = self._place.folder / changes.LAST_FULL.name
        rows = [f"{ended.name} = {ended.seconds:.0f}" for ended in self._ended]
        head = changes.head(self._place.root)
        path.write_text("\n".join([f'commit = "{head}"', f"date = {time.strftime('%F')}", "", "[seconds]", *rows, ""]))
        self._section("all checks passed", [f"copy {path} to {changes.LAST_FULL} and commit it"])

    def _close(self, status: int) -> int:
        """Prints pytest's own summary of the suite, as the last line."""
        self._section("pytest's own summary", report.pytest_summary(self._place.log))
        return status

    def _section(self, title: str, lines: Sequence[str]) -> None:
        if lines:
            self._say("", f"== {title}", *lines)

    def _say(self, *lines: str) -> None:
        text = "\n".join(lines) + "\n"
        with self._place.log.open("a") as log:
            log.write(text)
        sys.stdout.write(text)
        sys.stdout.flush()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)
