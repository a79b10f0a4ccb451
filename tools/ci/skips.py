"""Judges skipped tests: compares the records of a run with the list of known reasons, tests/house/skips.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.tests_run import read_record

LIST = Path("tests") / "house" / "skips.toml"


@dataclass(frozen=True)
class Known:
    """An entry of the list."""

    reason: str
    # Why a run may end without these tests.
    allowed: str = ""
    # The stage that runs them; after a colon, what else it takes.
    decided_by: str = ""

    @property
    def stage(self) -> str:
        return self.decided_by.partition(":")[0]

    def matches(self, text: str) -> bool:
        """Returns whether a test was skipped for this reason."""
        return re.fullmatch(self.reason, text, re.DOTALL) is not None


def known_skips(root: Path) -> list[Known]:
    """Returns the list of known reasons."""
    path = root / LIST
    return [Known(**entry) for entry in tomllib.loads(path.read_text())["skip"]] if path.exists() else []


def undecided(root: Path, reports: Path, stages: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns what a run skipped, and the skips that it should not have, after it ran these stages whole."""
    return verdict(skipped_everywhere(sorted(reports.glob("*.jsonl"))), known_skips(root), stages)


def skipped_everywhere(records: Iterable[Path]) -> dict[str, list[str]]:
    """Returns the tests that no record ran, each with the records' reasons. A skipped module counts as one test."""
    ran: set[str] = set()
    skipped: dict[str, list[str]] = {}
    for path in records:
        record = read_record(path)
        for test, outcome in record.outcomes.items():
            if outcome == "skipped":
                skipped.setdefault(test, []).append(record.texts[test])
            else:
                ran |= {test, test.partition("::")[0]}
    return {test: reasons for test, reasons in sorted(skipped.items()) if test not in ran}


def verdict(
    skipped: dict[str, list[str]], known: Sequence[Known], stages: Collection[str]
) -> tuple[list[str], list[str]]:
    """Returns lines that list skips with their reasons, and the problems.

    A skip is a problem if no entry of the list has its reason, or if the stage that decides it was among these stages.
    """
    by_reason: dict[str, list[str]] = {}
    for test, reasons in skipped.items():
        by_reason.setdefault(_last_word(reasons, known), []).append(test)
    lines, problems = [], []
    for reason, tests in by_reason.items():
        entry = _entry(reason, known)
        counted = f"{len(tests):4}  {reason}"
        if entry is None:
            problems.append(f"{counted}\n      not in {LIST}: {', '.join(tests[:5])}")
        elif entry.stage in stages:
            problems.append(f"{counted}\n      left undecided by `{entry.decided_by}`: {', '.join(tests[:5])}")
        else:
            lines.append(f"{counted}\n      {entry.allowed or f'decided by the stage {entry.decided_by}'}")
    return lines, problems


def _entry(reason: str, known: Sequence[Known]) -> Known | None:
    return next((entry for entry in known if entry.matches(reason)), None)


def _last_word(reasons: Sequence[str], known: Sequence[Known]) -> str:
    """Returns the decisive reason. One stage may defer a test to another, which may skip it for a different reason."""
    for reason in reasons:
        entry = _entry(reason, known)
        if entry is None or entry.allowed:
            return reason
    return reasons[0]
