"""Which tests run which line: recorded once with coverage, so that a mutant meets only tests that could notice it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class TestsOfLines:
    """Node ids of tests by source line."""

    __test__ = False  # pytest: this is no test class

    def __init__(self, data_file: Path) -> None:
        import coverage  # of the extra `mutants`

        unfit = set(_failures_of(data_file).read_text().splitlines())
        data = coverage.CoverageData(str(data_file))
        data.read()
        self._by_line: dict[Path, dict[int, set[str]]] = {}
        self._n_lines: Counter[str] = Counter()
        for name in data.measured_files():
            by_line: dict[int, set[str]] = defaultdict(set)
            for line, contexts in data.contexts_by_lineno(name).items():
                tests = {context.partition("|")[0] for context in contexts if context} - unfit
                by_line[line] = tests
                self._n_lines.update(tests)
            self._by_line[Path(name).resolve()] = by_line

    def of(self, path: Path, line: int) -> list[str]:
        """The tests that run this line, those first that run least else: they are the ones about it.

        A line that runs at import, such as a constant or a table, belongs to no test. Every test that runs something
        of its file may notice a change there, and every test of its room.
        """
        by_line = self._by_line.get(path.resolve(), {})
        found = by_line.get(line, set()) or set().union(*by_line.values()) | self._of_room(path.parts)
        return sorted(found, key=lambda test: (self._n_lines[test], test))

    def _of_room(self, parts: Sequence[str]) -> set[str]:
        room = parts[parts.index("imp_service") + 1]
        return {test for test in self._n_lines if test.startswith(f"tests/service/{room}/")}


def record(data_file: Path, package: Path, tests: list[str], environment: dict[str, str]) -> None:
    """Runs the tests under coverage. `package` is the copy of imp_service that they import.

    Tests that fail, such as those that measure time, notice nothing later: their names are kept apart.
    """
    data_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--all", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
    command += [f"--cov={package}", "--cov-context=test", "--cov-report="]
    variables = {**os.environ, **environment, "COVERAGE_FILE": str(data_file)}
    ran = subprocess.run(command, cwd=ROOT, check=False, env=variables, capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        raise SystemExit(f"the tests did not run:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    _failures_of(data_file).write_text("".join(f"{name}\n" for name in failed_tests(ran.stdout)))


def failed_tests(output: str) -> list[str]:
    """The node ids in pytest's summary."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+?::\w+(?:\[.*?\](?= - |$))?)", output, re.MULTILINE)


def _failures_of(data_file: Path) -> Path:
    return data_file.with_suffix(".failed")
