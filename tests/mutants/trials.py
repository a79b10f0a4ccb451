"""Runs tests in a process of their own, where one module may be a changed one."""

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
from time import monotonic

import pytest

from mutants.mutated_import import MutatedImport
from mutants.mutations import Mutation

ROOT = Path(__file__).resolve().parents[2]
# What tests import beside imp takes a second. A server that has it already forks each process.
PRELOADED = ["pytest", "numpy", "hypothesis", "grpc", "tokenizers", "jinja2", "cryptography.x509", "mutants.trials"]
# Compiled once for all trials, also where the environment says that Python writes no such files.
COMPILED = ROOT / "build" / "mutants" / "compiled"
QUIET = ["-n0", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-p", "no:cov"]
QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is preloaded
# Processor time says more than time on the wall, which says how busy the machine is. A mutant that waits uses none.
LEAST_CPU_SECONDS = 30
LEAST_WALL_SECONDS = 90
TIMES_RECORDED = 6
SECONDS_OF_ONE_TEST = 60


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended: which test failed, or which one was running as the process died or ran out of time."""

    passed: bool
    test: str = ""


class Trials:
    """Starts trials, any number at a time."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def run(self, words: Sequence[str], mutation: Mutation | None = None, recorded_seconds: float = 0.0) -> Outcome:
        """Runs tests up to the first that fails."""
        here, there = self._context.Pipe(duplex=False)
        cpu_seconds = LEAST_CPU_SECONDS + TIMES_RECORDED * recorded_seconds
        work = (list(words), mutation, self._package, int(cpu_seconds), there)
        process = self._context.Process(target=_run_tests, args=work)
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
    """Ends the process of a trial and the servers it started, which are of its group."""
    assert process.pid is not None  # narrows: it was started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # also where it ended, or was no group yet
    process.join()


def _run_tests(
    words: list[str], mutation: Mutation | None, package: Path, cpu_seconds: int, connection: Connection
) -> None:
    """The process of one trial."""
    os.setsid()
    os.chdir(ROOT)
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(COMPILED)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    if mutation is not None:
        MutatedImport(mutation, package).install()
    teller = _Teller(connection)
    code = pytest.main([*QUIET, f"--timeout={SECONDS_OF_ONE_TEST}", *words], plugins=[teller])
    if code == pytest.ExitCode.OK:
        connection.send(("passed", ""))
    else:
        connection.send(("failed", teller.failed))
    os._exit(0)  # threads that a mutant left would keep the process


class _Teller:
    """Tells of each test as it starts, so that the other end knows which one was running when all ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.failed = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(("started", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid
