"""Breaks the service's code in small ways, one at a time, and counts how many of these mutants the tests detect.

    python tests/mutants                     # 15 mutants of each room, a folder of imp_service
    python tests/mutants --count 50 --seed 7 --rooms rpc serving

The exit status is 1 if the tests detect a smaller share of a room's mutants than floors.toml says. The first run
records which tests run which line, and takes as long as those tests. Record again after a change of the code. No file
changes: a mutant exists only in the process whose tests import it, and in the processes that it starts. Needs imp with
the extension for its tests, and the extras `test` and `mutants`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from mutants.mutations import Mutation, mutations_of, python_files  # noqa: E402
from support.run.needed import EXTENSION, MUTANTS, absent, missing_of  # noqa: E402

# The least share of each room's mutants that the tests must detect. Ray's room is not here: its tests need Ray.
FLOORS: dict[str, float] = tomllib.loads((HERE / "floors.toml").read_text())
TESTS = [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tests" / "service").iterdir())
    if path.is_dir() and any(path.rglob("test_*.py"))
]
DATA_FILE = ROOT / "build" / "mutants" / "tests_of_lines"
# The tests that are most specific for a line come first. A mutant that needs more time than this counts as survived.
MOST_SECONDS = 30.0


def main(words: Sequence[str]) -> int:
    """Runs the mutants; returns the exit status."""
    options = _options(words)
    if missing := missing_of([EXTENSION, "pytest", "coverage"]):
        raise SystemExit(absent(missing[0], MUTANTS))
    from mutants.tests_of_lines import record

    package = _package()
    if options.record is not None or not DATA_FILE.exists():
        record(DATA_FILE, package, list(FLOORS), options.record or TESTS)
    chosen = {room: _choose(package / room, options.count, options.seed) for room in options.rooms}
    print(f"{sum(map(len, chosen.values()))} mutants, seed {options.seed}", flush=True)
    hunt = _Hunt(package)
    with ThreadPoolExecutor(options.jobs) as pool:
        noticed = {room: pool.map(hunt.is_noticed, mutants) for room, mutants in chosen.items()}
        found = {room: sum(each) for room, each in noticed.items()}
    return _judge(found, {room: len(mutants) for room, mutants in chosen.items()})


def _choose(folder: Path, count: int, seed: int) -> list[Mutation]:
    mutants = [each for path in python_files(folder) for each in mutations_of(path)]
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def _judge(found: dict[str, int], tried: dict[str, int]) -> int:
    """Prints the table of rooms; returns the exit status."""
    print(f"{'room':12}{'mutants':>8}{'detected':>10}{'share':>8}{'floor':>8}")
    status = 0
    for room, n in tried.items():
        share = found[room] / max(1, n)
        status |= share < FLOORS[room]
        print(f"{room:12}{n:>8}{found[room]:>10}{share:>8.0%}{FLOORS[room]:>8.0%}")
    n, n_found = sum(tried.values()), sum(found.values())
    print(f"{'all':12}{n:>8}{n_found:>10}{n_found / max(1, n):>8.0%}")
    return status


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python tests/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=15, help="mutants of each room to try (default 15)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the choice of mutants (default 1)")
    parser.add_argument("--rooms", nargs="+", choices=FLOORS, default=FLOORS, help="folders of imp_service to change")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time (default: one per core)"
    )
    parser.add_argument(
        "--record", nargs="*", metavar="PATH", help="record again which lines these tests run (default: all tests)"
    )
    return parser.parse_args(words)


def _package() -> Path:
    """Returns the folder of the package that the tests import, wherever it is installed."""
    import importlib.util

    spec = importlib.util.find_spec("imp_service")
    if spec is None or spec.origin is None:
        raise SystemExit("imp is not installed")
    return Path(spec.origin).resolve().parent


class _Hunt:
    """Looks for a test that detects a mutant."""

    def __init__(self, package: Path) -> None:
        from mutants.tests_of_lines import TestsOfLines
        from mutants.trials import Trials

        self._package = package
        self._tests = TestsOfLines(DATA_FILE)
        self._trials = Trials(package)

    def is_noticed(self, mutation: Mutation) -> bool:
        tests = self._affordable(self._tests.of(mutation))
        while tests:
            outcome = self._trials.run(tests, mutation, self._tests.seconds(tests))
            if outcome.passed:
                break
            # A test that also fails on the original code has detected nothing.
            failed = [outcome.test] if outcome.test else [*tests, "--collect-only"]
            if self._trials.run(failed).passed:
                return True
            if not outcome.test:
                raise SystemExit("the tests differ from the recorded ones: record them again")
            tests.remove(outcome.test)
        why = f"{len(tests)} tests pass" if tests else "no test runs the line"
        place = mutation.path.relative_to(self._package)
        print(f"survived  {place}:{mutation.line}  {mutation.what}  ({why})", flush=True)
        return False

    def _affordable(self, tests: list[str]) -> list[str]:
        while self._tests.seconds(tests) > MOST_SECONDS:
            tests.pop()
        return tests


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
