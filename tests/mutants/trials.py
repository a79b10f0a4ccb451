"""Runs tests in a separate process, on a copy of the package of which one file may be changed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

import pytest

from mutants.mutations import Mutation
from mutants.package_copy import PackageCopy

ROOT = Path(__file__).resolve().parents[2]
# The third-party imports of the tests take a second, so a fork server preloads them for each process.
PRELOADED = ["pytest", "numpy", "hypothesis", "grpc", "tokenizers", "jinja2", "trustme", "mutants.trials"]
COPIES = ROOT / "build" / "mutants" / "copies"
# Cache files are compiled once for all trials, even if the environment disables them.
COMPILED = ROOT / "build" / "mutants" / "compiled"
QUIET = ["-n0", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # warnings about preloaded modules
# CPU time is better than wall-clock time, which depends on the machine's load. A mutant that waits uses none.
LEAST_CPU_SECONDS = 30
LEAST_WALL_SECONDS = 90
TIMES_RECORDED = 6
SECONDS_OF_ONE_TEST = 60


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run of tests: the test that failed, or that ran when the process died or its time was over."""

    passed: bool
    test: str = ""


class Trials:
    """Runs `n_jobs` trials at a time."""

    def __init__(self, package: Path, n_jobs: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._copies: SimpleQueue[PackageCopy] = SimpleQueue()
        for number in range(n_jobs):
            self._copies.put(PackageCopy(package, COPIES / str(number)))

    def run(self, words: Sequence[str], mutation: Mutation | None = None, recorded_seconds: float = 0.0) -> Outcome:
        """Runs tests until the first one fails."""
        copy = self._copies.get()
        try:
            with copy.changed(mutation.path, mutation.mutant) if mutation else contextlib.nullcontext():
                return self._run(list(words), copy, LEAST_CPU_SECONDS + TIMES_RECORDED * recorded_seconds)
        finally:
            self._copies.put(copy)

    def _run(self, words: list[str], copy: PackageCopy, cpu_seconds: float) -> Outcome:
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_run_tests, args=(words, copy, int(cpu_seconds), there))
        process.start()
        there.close()
        try:
            return _outcome(here, monotonic() + max(LEAST_WALL_SECONDS, 2 * cpu_seconds))
        finally:
            _end(process)
            here.close()


def _outcome(connection: Connection, deadline: float) -> Outcome:
    running = ""
    while connection.poll(max(0, deadline - monotonic())):
        try:
            word, running = connection.recv()
        except EOFError:
            break
        if word != "started":
            return Outcome(word == "passed", running)
    return Outcome(False, running)


def _end(process: BaseProcess) -> None:
    """Kills the process of a trial and the servers that it started, which are in its process group."""
    assert process.pid is not None  # for mypy: the process was started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # also if it has ended, or has no group yet
    process.join()


def _run_tests(words: list[str], copy: PackageCopy, cpu_seconds: int, connection: Connection) -> None:
    """Runs tests in the process of one trial."""
    os.setsid()
    os.chdir(ROOT)
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(COMPILED)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    copy.import_first()
    reporter = _Reporter(connection)
    code = pytest.main([*QUIET, f"--timeout={SECONDS_OF_ONE_TEST}", *words], plugins=[reporter])
    if code == pytest.ExitCode.OK:
        connection.send(("passed", ""))
    else:
        connection.send(("failed", reporter.failed))
    os._exit(0)  # threads left by a mutant would keep the process alive


class _Reporter:
    """Reports each test as it starts, so that the parent process knows which one ran last."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.failed = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(("started", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid
