"""Records with coverage which tests run which line, so that a mutant runs only the tests that could detect it."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from mutants.mutations import Mutation

ROOT = Path(__file__).resolve().parents[2]
# It becomes another user, who cannot write the record.
LEFT_OUT = "tests/service/cli/test_model_paths.py::test_cmd_1_m47_each_command_on_a_file_that_may_not_be_read"


class TestsOfLines:
    """The node ids of the tests of each source line, with their times."""

    __test__ = False  # pytest: this is no test class

    def __init__(self, data_file: Path) -> None:
        import coverage  # of the extra `mutants`

        self._seconds: dict[str, float] = json.loads(_seconds_file(data_file).read_text())
        data = coverage.CoverageData(str(data_file))
        data.read()
        self._by_line: dict[Path, dict[int, set[str]]] = {}
        self._n_lines: Counter[str] = Counter()
        for name in data.measured_files():
            by_line: dict[int, set[str]] = defaultdict(set)
            for line, contexts in data.contexts_by_lineno(name).items():
                tests = {context.partition("|")[0] for context in contexts} & self._seconds.keys()
                by_line[line] = tests
                self._n_lines.update(tests)
            self._by_line[Path(name).resolve()] = by_line

    def of(self, mutation: Mutation) -> list[str]:
        """Returns the tests that run the changed line, file by file; quick and specific ones come first.

        A line that runs at import, such as a constant or a table, belongs to no test. Every test that runs code of its
        file, and every test of its folder, may detect a change of such a line.
        """
        by_line = self._by_line.get(mutation.path.resolve(), {})
        found = set() if mutation.at_import else by_line.get(mutation.line, set())
        if not found:
            found = set().union(*by_line.values()) | self._of_room(mutation.path.parts)
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(found, key=lambda test: (self._rank(test), test)):
            files[test.partition("::")[0]].append(test)
        return [test for tests in files.values() for test in tests]

    def seconds(self, tests: Sequence[str]) -> float:
        """Returns how long these tests took when they were recorded."""
        return sum(self._seconds[test] for test in tests)

    def _rank(self, test: str) -> float:
        return (self._seconds[test] + 0.01) * self._n_lines[test]

    def _of_room(self, parts: Sequence[str]) -> set[str]:
        room = parts[parts.index("imp_service") + 1]
        return {test for test in self._n_lines if test.startswith(f"tests/service/{room}/")}


def record(data_file: Path, package: Path, rooms: Sequence[str], tests: Sequence[str]) -> None:
    """Runs the tests under coverage, each path in a process of its own. Keeps the records of other tests."""
    data_file.parent.mkdir(parents=True, exist_ok=True)
    for path in tests:
        process = multiprocessing.get_context("spawn").Process(target=_record, args=(data_file, package, rooms, path))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"the tests of {path} did not run")


def _record(data_file: Path, package: Path, rooms: Sequence[str], tests: str) -> None:
    os.chdir(ROOT)
    os.environ["COVERAGE_FILE"] = str(data_file)
    seconds_file = _seconds_file(data_file)
    known = json.loads(seconds_file.read_text()) if seconds_file.exists() else {}
    clock = _Clock()
    options = [
        "-n0",
        # Otherwise pytest-cov acts as the master of several processes and names no tests.
        "--dist=no",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "--cov-context=test",
        "--cov-report=",
        "--cov-append",
        f"--deselect={LEFT_OUT}",
    ]
    code = pytest.main([*options, *(f"--cov={package / room}" for room in rooms), tests], plugins=[clock])
    seconds_file.write_text(json.dumps(known | clock.seconds, indent=0))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(int(code))


class _Clock:
    """Records the time of each passing test. A test that fails on the original code cannot detect a mutant."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)
            self.seconds.pop(report.nodeid, None)
        elif report.nodeid not in self._failed:
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def _seconds_file(data_file: Path) -> Path:
    return data_file.with_name("seconds_of_tests.json")
