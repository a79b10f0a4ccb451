"""The judgement over the event loop at the end of a session: what fails it, in one process and in several."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.run.loop_holds import Hold
from support.run.loop_verdict import FAR, LoopVerdict, findings_in

TESTS = Path(__file__).resolve().parents[2]
# The plugin, and a machine that takes nothing from the loop, so that the outcome does not depend on this one.
CONFTEST = """
from support.run import loop_holds
from support.run.loop_verdict import LoopVerdict
from support.run.taken_time import Taken, TakenTime

def pytest_configure(config):
    config.pluginmanager.register(LoopVerdict())
    TakenTime.since = lambda self: Taken(0.0, 0.0)
"""
# Two tests of a server. In those of HELD, a handler takes 60 ms of the loop's processor time.
INNER = """
import time
import pytest
from imp_service.rpc.imp_v1 import generate
from support.servers.served import ask, serve

HELD = {held}

@pytest.mark.parametrize("n", range(2))
def test_asks(n, monkeypatch):
    def burn(*arguments):
        end = time.thread_time() + 0.06
        while n in HELD and time.thread_time() < end:
            pass
        return write_reply(*arguments)

    write_reply = generate.write_reply
    monkeypatch.setattr(generate, "write_reply", burn)
    with serve() as served:
        assert len(list(served.inference.Generate(ask([1], 1)))) > 1
"""


def hold(test: str, times: float = 1.5, step: str = "Task > answer", *, is_stolen: bool = False) -> Hold:
    return Hold(step, test, 0.02 * times, times, is_stolen)


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ([], []),
        ([hold("a"), hold("b")], []),
        ([hold("a"), hold("a"), hold("a")], []),  # one test
        ([hold("a"), hold("b"), hold("b")], ["Task > answer"]),
        ([hold("a"), hold("b"), hold("b", step="Task > other")], []),  # two steps
        ([hold("a", FAR)], ["Task > answer"]),
        ([hold("a", FAR, is_stolen=True)], []),
        ([hold("a", 2 * FAR, step="b"), hold("a", 3 * FAR, step="a")], ["a", "b"]),
    ],
)
def test_o03_rpc_30_a_step_is_judged_by_all_its_holds(holds: list[Hold], expected: list[str]) -> None:
    assert [step for step, _ in findings_in(holds)] == expected


def test_o03_this_session_is_judged(request: pytest.FixtureRequest) -> None:
    assert sum(isinstance(each, LoopVerdict) for each in request.config.pluginmanager.get_plugins()) == 1


@pytest.mark.parametrize("n_workers", [0, 2])
def test_o03_rpc_30_a_handler_that_holds_the_loop_in_several_tests_fails_the_session(
    tmp_path: Path, n_workers: int
) -> None:
    """Each test by itself passes. Of two workers, neither sees more than one of them."""
    status, output = session(tmp_path, [0, 1], n_workers)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"\d failed, 2 passed", output), output
    assert set(re.findall(r"ms, [\d.]+ times the limit, in test_inner.py::test_asks\[(\d)\]", output)) == {"0", "1"}
    step = "HandleExceptions(/imp.v1.InferenceService/Generate) > Generate.stream > GrpcCall.write"
    # pytest adds the message where CI is set.
    assert re.search(rf"^FAILED tests/support/run/loop_holds\.py::{re.escape(step)}( - .*)?$", output, re.MULTILINE), (
        output
    )


@pytest.mark.long
def test_o03_a_session_with_a_hold_in_one_test_passes(tmp_path: Path) -> None:
    status, output = session(tmp_path, [1], 2)
    assert status == pytest.ExitCode.OK and "2 passed" in output, output


def session(folder: Path, held: list[int], n_workers: int) -> tuple[int, str]:
    """Runs the inner tests in a session of their own; returns its exit status and its output."""
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_inner.py").write_text(INNER.format(held=held))
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", f"-n{n_workers}", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr
