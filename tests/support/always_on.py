"""The checks that run after every test of the service, as fixtures that a conftest takes over."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.findings import FINDINGS
from support.served import LIVE, serve
from support.server_checks import Holdings, Level, left_since, problems_of

WARM: list[bool] = []


@pytest.fixture(autouse=True, scope="module")
def nothing_left() -> Iterator[None]:
    """Fails a module after which this process holds more descriptors or threads than before it (G4)."""
    # What gRPC and the shared loop keep for as long as the process lives is there from the first server on.
    if not WARM:
        with serve() as served:
            served.wait_for_rest()
        WARM.append(True)
    before = Holdings.now()
    yield
    problems = left_since(before)
    if problems:
        pytest.fail("; ".join(problems), pytrace=False)


@pytest.fixture(autouse=True)
def always_on() -> Iterator[None]:
    """Fails a test after which a server is not what it was, or of which a call broke a rule of the API."""
    FINDINGS.take()
    pid = os.getpid()
    before = {served: Level.of(served) for served in LIVE if served.is_checked}
    yield
    problems = [problem for served in LIVE if served in before for problem in problems_of(served, before[served])]
    # Last: the canary's own calls are checked too.
    problems += FINDINGS.take()
    assert os.getpid() == pid, "G1"
    if problems:
        pytest.fail("; ".join(problems), pytrace=False)
