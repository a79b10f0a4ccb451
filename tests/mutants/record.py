"""Records which tests run which line, in the process of the tests and in those that they start.

A line that the setup of a fixture runs counts for every test of the file if the tests share the fixture.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mutants import lines_of_children
from mutants.lines_of_children import FOLDER, PREFIX, RECORDER, TEST
from mutants.package_copy import PackageCopy

if TYPE_CHECKING:
    from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parents[2]
# Mutants run beside each other, so tests that need the machine for themselves take no part.
OPTIONS = ["-n0", "--dist=no", "-q", "--tb=short", "-p", "no:cacheprovider", "--long", "-m", "not alone and not timing"]
# It becomes another user, who cannot write the record.
LEFT_OUT = "tests/service/cli/test_model_paths.py::test_cmd_1_m47_each_command_on_a_file_that_may_not_be_read"
HOOK = b"\nfrom imp_service import lines_of_children\nlines_of_children.record()\n"


def record(folder: Path, package: Path, tests: Sequence[str], n_jobs: int) -> None:
    """Runs the tests under coverage, each path in a process of its own. Keeps the records of other paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(n_jobs) as pool:
        for path, code in zip(tests, pool.map(lambda path: _run(folder, package, path), tests), strict=True):
            if code:
                raise SystemExit(f"the tests of {path} did not run")


def _run(folder: Path, package: Path, tests: str) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=_record, args=(folder, package, tests))
    process.start()
    process.join()
    return process.exitcode


def _record(folder: Path, package: Path, tests: str) -> None:
    import coverage  # of the extra `mutants`

    os.chdir(ROOT)
    name = tests.replace("/", ".")
    copy = PackageCopy(package, folder / f"{name}.copy")
    copy.import_first()
    start, recorder = package / "__init__.py", package / Path(lines_of_children.__file__).name
    os.environ[RECORDER] = str(os.getpid())
    lines = coverage.Coverage(data_file=str(folder / f"{name}.lines"), config_file=False, include=[f"{copy.package}/*"])
    plugin = _Tests(lines)
    with (
        copy.changed(start, start.read_bytes() + HOOK),
        copy.changed(recorder, Path(lines_of_children.__file__).read_bytes()),
        lines.collect(),
    ):
        code = pytest.main([*OPTIONS, f"--deselect={LEFT_OUT}", tests], plugins=[plugin])
    _add_children(lines.get_data(), copy.package)
    lines.save()
    copy.remove()
    (folder / f"{name}.seconds").write_text(json.dumps(plugin.seconds, indent=0))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(int(code))


def _add_children(data: CoverageData, package: Path) -> None:
    for path in (package / FOLDER).glob(f"{PREFIX}*"):
        test, _, places = path.read_text().partition("\n")
        lines: dict[str, set[int]] = defaultdict(set)
        for name, number in re.findall(r"^(.+):(\d+)\n", places, re.MULTILINE):  # the last line may be cut off
            lines[str(package / name)].add(int(number))
        data.set_context(test)
        data.add_lines(lines)


class _Tests:
    """Tells the recorders which test runs, and records the time of each passing test.

    A test that fails on the original code cannot detect a mutant.
    """

    def __init__(self, lines: Coverage) -> None:
        self.seconds: dict[str, float] = {}
        self._lines = lines
        self._failed: set[str] = set()
        self._context = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._switch(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        before = self._context
        if fixturedef.scope != "function":
            self._switch(before.partition("::")[0])
        try:
            return (yield)
        finally:
            self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)
            self.seconds.pop(report.nodeid, None)
        elif report.nodeid not in self._failed:
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def _switch(self, context: str) -> None:
        if context != self._context:
            self._context = context
            self._lines.switch_context(context)
            os.environ[TEST] = context
