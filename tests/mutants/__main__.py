"""Breaks the service's code in small ways, one at a time, and counts how many of these mutants the tests detect.

    python tests/mutants                     # 15 mutants of each room, a folder of imp_service
    python tests/mutants --count 50 --seed 7 --rooms rpc serving

The exit status is 1 if the tests detect a smaller share of a room's mutants than floors.toml says. The first run
records which tests run which line, and takes as long as those tests. Record again after a change of the code. A mutant
exists in a copy of the installed package, which the tests import, and the processes that they start. Needs imp with the
extension for its tests, and the extras `test` and `mutants`.
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
# These test the core through its bindings alone, the tree, or programs beside the service.
OTHER_TESTS = ("backend", "base", "examples", "gpu", "house", "image", "parity", "soak", "tensor")
DATA = ROOT / "build" / "mutants" / "record"


def main(words: Sequence[str]) -> int:
    """Runs the mutants; returns the exit status."""
    options = _options(words)
    if missing := missing_of([EXTENSION, "pytest", "coverage"]):
        raise SystemExit(absent(missing[0], MUTANTS))
    from mutants.record import record

    package = _package()
    if options.record is not None or not DATA.exists():
        record(DATA, package, options.record or _folders_of_tests(), options.jobs)
    chosen = {room: _choose(package / room, options.count, options.seed) for room in options.rooms}
    print(f"{sum(map(len, chosen.values()))} mutants, seed {options.seed}", flush=True)
    hunt = _Hunt(package, options.jobs)
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


def _folders_of_tests() -> list[str]:
    folders = [path for path in (ROOT / "tests").iterdir() if path.name not in OTHER_TESTS]
    folders = [each for path in folders for each in (path.iterdir() if path.name == "service" else [path])]
    return sorted(str(path.relative_to(ROOT)) for path in folders if path.is_dir() and any(path.rglob("test_*.py")))


def _package() -> Path:
    """Returns the folder of the package that the tests import, wherever it is installed."""
    import importlib.util

    spec = importlib.util.find_spec("imp_service")
    if spec is None or spec.origin is None:
        raise SystemExit("imp is not installed")
    return Path(spec.origin).resolve().parent


class _Hunt:
    """Looks for a test that detects a mutant."""

    def __init__(self, package: Path, n_jobs: int) -> None:
        from mutants.tests_of_lines import TestsOfLines
        from mutants.trials import Trials

        self._package = package
        self._tests = TestsOfLines(DATA, package)
        self._trials = Trials(package, n_jobs)

    def is_noticed(self, mutation: Mutation) -> bool:
        tests = self._tests.of(mutation)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
