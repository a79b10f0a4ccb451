"""Records a run of pytest as lines of JSON while it goes, so that a run that is killed leaves its results too.

IMP_RECORD=FILE asks for it. The lines are {"collected": N}, {"test": ID, "outcome": …, "text": …} for each test, and
{"exit": STATUS} at the end. `text` is the first line of a failure, or the reason of a skip. tools/ci reads the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def record_run(config: pytest.Config) -> None:
    """Starts a record if this process asks for one and is no worker of pytest-xdist."""
    if (path := os.environ.pop("IMP_RECORD", "")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunRecord(Path(path)))


class RunRecord:
    """Writes the lines of one run."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", buffering=1)
        self._has_count = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._count(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._count(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._test(report.nodeid, "error" if report.failed else "skipped", report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._test(report.nodeid, "failed" if report.when == "call" else "error", report.longrepr)
        elif report.skipped:
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            self._test(report.nodeid, outcome, report.longrepr)
        elif report.when == "call":
            self._test(report.nodeid, "passed", None)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._line(exit=int(exitstatus))
        self._file.close()

    def _count(self, n: int) -> None:
        # Each worker collects all tests.
        if not self._has_count:
            self._has_count = True
            self._line(collected=n)

    def _test(self, test: str, outcome: str, why: Any) -> None:
        self._line(test=test, outcome=outcome, text=_text(why))

    def _line(self, **values: Any) -> None:
        self._file.write(json.dumps(values) + "\n")


def _text(why: Any) -> str:
    """Returns the reason of a skip, or the first line of a failure."""
    if why is None:
        return ""
    if isinstance(why, tuple):
        return str(why[2]).removeprefix("Skipped: ")
    crash = getattr(why, "reprcrash", None)
    return next(iter(str(crash.message if crash is not None else why).strip().splitlines()), "")
