"""Judges skipped tests: compares pytest's JUnit reports with the list of known reasons.

`python -m support.skips REPORT…` prints the tests that every report skips, and fails where a reason is not allowed.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "house" / "skips.toml"


@dataclass(frozen=True)
class Known:
    """An entry of the list."""

    reason: str
    allowed: str = ""
    decided_by: str = ""

    def matches(self, text: str) -> bool:
        """Returns whether a test was skipped for this reason."""
        return re.fullmatch(self.reason, text, re.DOTALL) is not None


def known_skips() -> list[Known]:
    """Returns the list of known reasons."""
    return [Known(**entry) for entry in tomllib.loads(LIST.read_text())["skip"]]


def skipped_everywhere(reports: Iterable[Path]) -> dict[str, list[str]]:
    """Returns the tests that no report ran, each with the reports' reasons. A skipped module counts as one test."""
    ran: set[str] = set()
    skipped: dict[str, list[str]] = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):
            module, name = case.get("classname", ""), case.get("name", "")
            test = f"{module}::{name}" if module else name
            found = case.find("skipped")
            if found is None:
                ran |= {test, module}
            elif found.get("type") != "pytest.xfail":
                skipped.setdefault(test, []).append(_reason(found))
    return {test: reasons for test, reasons in sorted(skipped.items()) if test not in ran}


def _reason(skipped: ET.Element) -> str:
    message = skipped.get("message", "")
    if message != "collection skipped":
        return message
    # A whole module: file, line and reason in the element's text.
    return str(ast.literal_eval(skipped.text or "")[2]).removeprefix("Skipped: ")


def verdict(skipped: dict[str, list[str]], known: Sequence[Known]) -> tuple[list[str], list[str]]:
    """Returns lines that list allowed skips with their reasons, and the problems: skips that are not allowed."""
    by_reason: dict[str, list[str]] = {}
    for test, reasons in skipped.items():
        by_reason.setdefault(_last_word(reasons, known), []).append(test)
    lines, problems = [], []
    for reason, tests in by_reason.items():
        entry = _entry(reason, known)
        counted = f"{len(tests):4}  {reason}"
        if entry is None:
            problems.append(f"{counted}\n      not in tests/house/skips.toml: {', '.join(tests[:5])}")
        elif not entry.allowed:
            problems.append(f"{counted}\n      left undecided by `{entry.decided_by}`: {', '.join(tests[:5])}")
        else:
            lines.append(f"{counted}\n      {entry.allowed}")
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


def main(reports: Sequence[str]) -> int:
    """Prints the verdict and returns the exit status."""
    lines, problems = verdict(skipped_everywhere(map(Path, reports)), known_skips())
    print("\n".join(lines) or "nothing was skipped")
    for problem in problems:
        print(f"NOT ALLOWED\n{problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
