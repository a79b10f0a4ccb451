"""Runs pytest for a stage, and runs failed tests once more, alone: `tests_run.py NAME [PATH…] [OPTION…]`.

A run passes if every collected test has run and passed. A few tests may fail and pass when they run again alone, since
a busy machine can delay a test beyond its time limit; the report of the run names them. Nothing else that goes wrong is
forgiven: a run that is killed, a worker that crashes, or tests that did not run.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any

# More failures than this are no accident.
MOST_ACCIDENTS = 3
TESTS_FAILED = 1
CRASH = " crashed while running "


@dataclass
class Record:
    """What a run of pytest wrote down."""

    n_collected: int = 0
    # The outcome of each test: the last, but a failure or an error stays.
    outcomes: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    exit_status: int | None = None

    def add(self, line: dict[str, Any]) -> None:
        """Adds a line of the record."""
        if "collected" in line:
            self.n_collected = line["collected"]
        elif "exit" in line:
            self.exit_status = line["exit"]
        elif self.outcomes.get(line["test"]) not in ("failed", "error"):
            self.outcomes[line["test"]] = line["outcome"]
            self.texts[line["test"]] = line["text"]

    @property
    def failed(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome in ("failed", "error")]

    @property
    def n_ran(self) -> int:
        """The number of collected tests with an outcome; a module that failed or was skipped as a whole is no test."""
        return sum("::" in test for test in self.outcomes)

    @property
    def is_complete(self) -> bool:
        return 0 < self.n_collected == self.n_ran and self.exit_status is not None


def read_record(path: Path) -> Record:
    """Reads a record; of one that was cut short, what is there."""
    record = Record()
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record.add(json.loads(line))
        except ValueError:
            break
    return record


def run_tests(name: str, arguments: Sequence[str], reports: Path) -> int:
    """Runs pytest, writes the records NAME.jsonl and NAME.again.jsonl, and returns the exit status."""
    status = _pytest(arguments, reports / f"{name}.jsonl")
    record = read_record(reports / f"{name}.jsonl")
    if status == 0 and not record.is_complete:
        print(f"only {record.n_ran} of {record.n_collected} collected tests ran", flush=True)
        return 1
    failed = record.failed
    if status != TESTS_FAILED or not record.is_complete or _is_crash(record):
        return status
    if not 0 < len(failed) <= MOST_ACCIDENTS:
        return status
    print(f"run again alone: {' '.join(failed)}", flush=True)
    options = dropwhile(lambda word: not word.startswith("-"), arguments)
    again = _pytest([*failed, *options, "-n0"], reports / f"{name}.again.jsonl")
    repeated = read_record(reports / f"{name}.again.jsonl")
    passed = again == 0 and sorted(repeated.outcomes) == sorted(failed) and not repeated.failed
    return 0 if passed else status


def _pytest(arguments: Sequence[str], record: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    status = subprocess.run(command, env={**os.environ, "IMP_RECORD": str(record)}, check=False).returncode
    if status < 0:
        print(f"pytest was killed by signal {-status}", flush=True)
    return 128 - status if status < 0 else status


def _is_crash(record: Record) -> bool:
    return any(CRASH in text for text in record.texts.values())


def main(name: str, arguments: Sequence[str]) -> int:
    """Runs the tests of a stage; tells the report the command if it fails."""
    status = run_tests(name, arguments, Path(os.environ["IMP_CI_REPORTS"]))
    if status != 0:
        command = shlex.join(["python", "-m", "pytest", "-q", *arguments])
        Path(os.environ["IMP_CI_FAILED_COMMAND"]).write_text(f"{command}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
