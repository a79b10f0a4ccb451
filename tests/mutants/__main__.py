"""Breaks the service's code in small ways, one at a time, and counts how many of these mutants the tests notice.

    python tests/mutants                     # 300 mutants, at least 90 % noticed, else exit status 1
    python tests/mutants --count 50 --seed 7 --rooms rpc serving

It changes a copy of the package. The tests must import that copy, so imp must be installed as README says and not as
an editable install. The first run records which tests run which line, and takes as long as those tests.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from mutants.mutations import Mutation, mutations_of, python_files  # noqa: E402
from mutants.tests_of_lines import TestsOfLines, failed_tests, record  # noqa: E402

ROOMS = ("config", "serving", "rpc", "generation", "text", "client")
TESTS = ["tests/service", "tests/determinism"]
WORK = ROOT / "build" / "mutants"
# Tests about a line come first; one that needs more than these to be noticed is not held by the suite.
MOST_TESTS = 1000
SECONDS = 180


def main(words: Sequence[str]) -> int:
    """The exit status."""
    options = _options(words)
    package = _copy_package(WORK / "package")
    data_file = WORK / "tests_of_lines"
    if options.record or not data_file.exists():
        record(data_file, package, options.tests, _importing(package))
    tests = TestsOfLines(data_file)
    mutants = [each for room in options.rooms for path in python_files(package / room) for each in mutations_of(path)]
    chosen = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))
    print(f"{len(chosen)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    survivors = list(_survivors(chosen, tests, package, options.jobs))
    n_killed = len(chosen) - len(survivors)
    print(f"{n_killed} of {len(chosen)} mutants noticed: {n_killed / len(chosen):.1%}, expected {options.floor:.0%}")
    return 0 if n_killed >= options.floor * len(chosen) else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description="mutation testing of the service")
    parser.add_argument("--count", type=int, default=300, help="mutants to try (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn (default 1)")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS, help="folders of imp_service to change")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="tests that may notice them")
    parser.add_argument("--floor", type=float, default=0.9, help="least share that must be noticed (default 0.9)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (default: CPUs)")
    parser.add_argument("--record", action="store_true", help="record again which tests run which line")
    return parser.parse_args(words)


def _copy_package(folder: Path) -> Path:
    """The installed package with the sources of this checkout. Stays at one path, which the coverage data names."""
    import imp_service

    installed = Path(imp_service.__file__).parent
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(installed, folder / "imp_service", ignore=shutil.ignore_patterns("__pycache__"))
    for path in python_files(ROOT / "service" / "imp_service"):
        target = folder / "imp_service" / path.relative_to(ROOT / "service" / "imp_service")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder / "imp_service"


def _importing(package: Path) -> dict[str, str]:
    """Variables under which Python imports this copy; fails where it imports another one."""
    variables = {"PYTHONPATH": str(package.parent)}
    probe = [sys.executable, "-c", "import imp_service; print(imp_service.__file__)"]
    ran = subprocess.run(probe, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    if Path(ran.stdout.strip()).parent != package:
        raise SystemExit(f"Python imports {ran.stdout.strip()}, not the copy: install imp without -e")
    return variables


def _survivors(chosen: Sequence[Mutation], tests: TestsOfLines, package: Path, n_jobs: int) -> Iterator[Mutation]:
    """The mutants that no test notices, printed as they are found. Each job has a copy of its own to break."""
    copies = [WORK / f"job{i}" / "imp_service" for i in range(n_jobs)]
    for copy in copies:
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(package, copy)

    def work(job: int) -> list[Mutation]:
        return [each for each in chosen[job::n_jobs] if not _is_noticed(each, tests, package, copies[job])]

    with ThreadPoolExecutor(n_jobs) as pool:
        for found in pool.map(work, range(n_jobs)):
            yield from found


def _is_noticed(mutation: Mutation, tests: TestsOfLines, package: Path, copy: Path) -> bool:
    about = tests.of(mutation.path, mutation.line)[:MOST_TESTS]
    place = mutation.path.relative_to(package)
    if not about:
        print(f"survived  {place}:{mutation.line}  {mutation.what}  (no test runs the line)", flush=True)
        return False
    broken, original = copy / place, mutation.path.read_bytes()
    while about:
        broken.write_bytes(mutation.apply(original))
        failed = _failing(about, copy)
        broken.write_bytes(original)
        if failed is None:
            break
        # A test that fails on the unbroken code too has noticed nothing.
        if failed == "" or _failing([failed], copy) is None:
            return True
        about.remove(failed)
    print(f"survived  {place}:{mutation.line}  {mutation.what}  ({len(about)} tests pass)", flush=True)
    return False


def _failing(about: Sequence[str], copy: Path) -> str | None:
    """The test that fails first; empty where the run as a whole fails or comes to no end, None where all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", "--timeout=60"]
    variables = {**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            [*command, *about], cwd=ROOT, capture_output=True, text=True, check=False, env=variables, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return ""
    if ran.returncode == 0:
        return None
    failed = failed_tests(ran.stdout)
    return failed[0] if failed and failed[0] in about else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
