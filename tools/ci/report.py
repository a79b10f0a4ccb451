"""Says how a run ended: the times of its stages, what it left out, and in at most 60 lines why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ci.runner import Ended, Workplace, describe
from ci.tests_run import Record, read_record

MOST_TESTS = 12
MOST_LOG_LINES = 16
MOST_WIDTH = 160
SUMMARY = re.compile(r"^(=+ )?\d+ .*(passed|failed|error|skipped).* in [0-9.]+s.*$")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def times(ended: Sequence[Ended], total: float) -> list[str]:
    """Returns the table of stages and seconds."""
    return [f"{stage.seconds:7.0f} s  {stage.name}" for stage in ended] + [f"{total:7.0f} s  in all"]


def second_tries(place: Workplace) -> list[str]:
    """Returns the tests that failed and passed when they ran again alone."""
    return [
        f"{test}: {record.texts[test]}"[:MOST_WIDTH]
        for path, record in _records(place)
        for test in record.failed
        if _outcome_again(place, path, test) == "passed"
    ]


def failure(place: Workplace, ended: Ended) -> list[str]:
    """Returns the lines that explain a failed stage."""
    lines = [f"== FAILED: stage {ended.name}, after {ended.seconds:.0f} s", ""]
    lines.append(f"command   {ended.command or f'bash .ci/stages/{ended.name}.sh'}"[:MOST_WIDTH])
    lines.append(f"end       {ended.why or describe(ended.status)}")
    for path, record in _records(place, ended):
        if record.failed or not record.is_complete:
            lines += _tests(place, path, record)
    lines += [f"log       {place.log}", "", *_log_tail(place.log)]
    return lines


def failures(place: Workplace, failed: Sequence[Ended], absent: Sequence[str]) -> list[str]:
    """Returns the end of a run that went on after a failed stage: all failed stages and their tests, in short."""
    lines = [f"== FAILED: {', '.join(ended.name for ended in failed)}", ""]
    for ended in failed:
        lines.append(f"{ended.name}  {ended.command or ended.why or describe(ended.status)}"[:MOST_WIDTH])
        records = [record for _, record in _records(place, ended)]
        tests = [(test, record.texts[test]) for record in records for test in record.failed]
        shown = max(1, MOST_TESTS // len(failed))
        lines += [f"  {test}: {text}"[:MOST_WIDTH] for test, text in tests[:shown]]
        lines += [f"  and {len(tests) - shown} more"] if len(tests) > shown else []
    if absent:
        lines.append(f"not run, because they need a failed stage: {', '.join(absent)}")
    return [*lines, f"log  {place.log}"]


def _tests(place: Workplace, path: Path, record: Record) -> list[str]:
    collected = f"{record.n_ran} of {record.n_collected} collected tests ran"
    lines = [f"tests     {path.stem}: {len(record.failed)} failed, {collected}"]
    for test in record.failed[:MOST_TESTS]:
        lines += [f"  {test}"[:MOST_WIDTH], f"      {record.texts[test]}"[:MOST_WIDTH]]
    if len(record.failed) > MOST_TESTS:
        lines.append(f"  and {len(record.failed) - MOST_TESTS} more")
    again = {test: _outcome_again(place, path, test) for test in record.failed}
    if not any(again.values()):
        return [*lines, "rerun     none"]
    passed = sum(outcome == "passed" for outcome in again.values())
    return [*lines, f"rerun     alone, {passed} of {len(again)} passed"]


def _outcome_again(place: Workplace, path: Path, test: str) -> str:
    return read_record(place.reports / f"{path.stem}.again.jsonl").outcomes.get(test, "")


def _records(place: Workplace, ended: Ended | None = None) -> list[tuple[Path, Record]]:
    """Returns the records of first tries, of one stage or of all."""
    paths = sorted(path for path in place.reports.glob("*.jsonl") if not path.name.endswith(".again.jsonl"))
    return [(path, read_record(path)) for path in paths if ended is None or ended.has_written(path)]


def _log_tail(log: Path) -> list[str]:
    lines = [ESCAPES.sub("", line).rstrip()[:MOST_WIDTH] for line in log.read_text(errors="replace").splitlines()]
    return [line for line in lines if line][-MOST_LOG_LINES:]


def pytest_summary(log: Path) -> list[str]:
    """Returns the summary line of the run's first pytest; nothing if pytest did not end."""
    lines = (ESCAPES.sub("", line) for line in log.read_text(errors="replace").splitlines())
    return [line.strip("= ") for line in lines if SUMMARY.match(line)][:1]
