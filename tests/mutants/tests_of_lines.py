"""Chooses the tests that could detect a mutant, from the record of the lines that each test runs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mutants.mutations import Mutation

if TYPE_CHECKING:
    from coverage import CoverageData

# The chosen tests of one mutant take at most this long, as far as there is a choice.
MOST_SECONDS = 120.0


class TestsOfLines:
    """The node ids of the tests of each source line, with their times."""

    __test__ = False  # pytest: this is no test class

    def __init__(self, folder: Path, package: Path) -> None:
        import coverage  # of the extra `mutants`

        self._package = package
        self._seconds: dict[str, float] = {}
        self._by_line: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._n_lines: Counter[str] = Counter()
        for path in sorted(folder.glob("*.seconds")):
            seconds: dict[str, float] = json.loads(path.read_text())
            self._seconds |= seconds
            data = coverage.CoverageData(str(path.with_suffix(".lines")))
            data.read()
            self._add(data, _tests_of_contexts(seconds))

    def _add(self, data: CoverageData, tests_of: dict[str, list[str]]) -> None:
        for name in data.measured_files():
            by_line = self._by_line[name.rpartition(f"/{self._package.name}/")[2]]
            for line, contexts in data.contexts_by_lineno(name).items():
                tests = {test for context in contexts for test in tests_of.get(context, ())}
                self._n_lines.update(tests - by_line[line])
                by_line[line] |= tests

    def of(self, mutation: Mutation) -> list[str]:
        """Returns tests that run the changed line, file by file; quick and specific ones come first.

        A line that runs at import, such as a constant or a table, belongs to no test. Every test that runs code of its
        file, and every test of its folder, may detect a change of such a line.
        """
        by_line = self._by_line.get(str(mutation.path.relative_to(self._package)), {})
        found = set() if mutation.at_import else by_line.get(mutation.line, set())
        if not found:
            found = set().union(*by_line.values()) | self._of_room(mutation.path)
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(self._affordable(found), key=self._rank):
            files[test.partition("::")[0]].append(test)
        return [test for tests in files.values() for test in tests]

    def seconds(self, tests: Iterable[str]) -> float:
        """Returns how long these tests took when they were recorded."""
        return sum(self._seconds[test] for test in tests)

    def _affordable(self, tests: Iterable[str]) -> list[str]:
        """Chooses the quick and specific ones, then the first case of each test function, each second case, and so on.

        Each half of the time is for one of these orders.
        """
        ranked = sorted(tests, key=self._rank)
        n_cases: Counter[str] = Counter()
        case: dict[str, int] = {}
        for test in ranked:
            function = test.partition("[")[0]
            case[test] = n_cases[function]
            n_cases[function] += 1
        in_turn = sorted(ranked, key=case.__getitem__)
        chosen: dict[str, None] = {}
        used = 0.0
        for order, most in ((ranked, MOST_SECONDS / 2), (in_turn, MOST_SECONDS)):
            for test in order:
                if test not in chosen and (used + self._seconds[test] <= most or not chosen):
                    chosen[test] = None
                    used += self._seconds[test]
        return list(chosen)

    def _rank(self, test: str) -> tuple[float, str]:
        return (self._seconds[test] + 0.01) * self._n_lines[test], test

    def _of_room(self, path: Path) -> set[str]:
        room = path.relative_to(self._package).parts[0]
        return {test for test in self._n_lines if test.startswith(f"tests/service/{room}/")}


def _tests_of_contexts(tests: Iterable[str]) -> dict[str, list[str]]:
    """Maps each test to itself, and each file to its tests."""
    found: dict[str, list[str]] = {test: [test] for test in tests}
    for test in tests:
        found.setdefault(test.partition("::")[0], []).append(test)
    return found
