"""A plugin of pytest that fails the session if steps of imp hold the event loop for too long (RPC-30, O03).

One slow step proves nothing: the machine may be at fault. So the plugin collects the slow steps of all tests and of
all worker processes, and judges each step at the end by all its holds. Each finding is reported as a failed test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator

import pytest

from support.run.loop_holds import Hold, take_holds

# A step is a finding if it was slow this often, in this many tests.
LEAST_HOLDS, LEAST_TESTS = 3, 2
# One hold of this many times the limit suffices, if the host stole no time during it.
FAR = 5
# The test reports carry the holds under this name, also from a worker process to its controller.
PROPERTY = "loop_hold"
FILE = "tests/support/run/loop_holds.py"


def findings_in(holds: Iterable[Hold]) -> Iterator[tuple[str, list[Hold]]]:
    """Yields each step that holds the loop for too long, and its holds, the longest first."""
    of_step: dict[str, list[Hold]] = defaultdict(list)
    for hold in holds:
        of_step[hold.step].append(hold)
    for step, found in sorted(of_step.items()):
        is_often = len(found) >= LEAST_HOLDS and len({hold.test for hold in found}) >= LEAST_TESTS
        if is_often or any(hold.times >= FAR and not hold.is_stolen for hold in found):
            yield step, sorted(found, key=lambda hold: -hold.times)


class LoopVerdict:
    """The plugin. Worker processes attach their holds to their reports; the process that reports judges."""

    def __init__(self) -> None:
        self._holds: list[Hold] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.user_properties += [(PROPERTY, list(hold)) for hold in take_holds()]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._holds += [Hold(*hold) for name, hold in report.user_properties if name == PROPERTY]  # type: ignore[misc]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if not hasattr(session.config, "workerinput"):
            for step, holds in findings_in(self._holds):
                session.config.hook.pytest_runtest_logreport(report=_failed(step, holds))
        return result


def _failed(step: str, holds: list[Hold]) -> pytest.TestReport:
    """Returns the report of a failed test that has the step's name."""
    lines = [f"RPC-30, O03: the event loop was held {len(holds)} times for too long by {step}"]
    lines += [
        f"  {1000 * hold.seconds:.0f} ms, {hold.times:.1f} times the limit, in {hold.test}" for hold in holds[:20]
    ]
    name = step.replace("[", "(").replace("]", ")")  # brackets mean parameters
    return pytest.TestReport(f"{FILE}::{name}", (FILE, None, name), {}, "failed", "\n".join(lines), "call")
