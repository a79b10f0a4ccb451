"""Fixtures with the checks that run after every test of the service; a conftest imports them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.run.findings import FINDINGS
from support.servers.served import LIVE, serve
from support.servers.server_checks import Holdings, Level, left_since, problems_of

WARM: list[bool] = []


@pytest.fixture(autouse=True, scope="module")
def nothing_left() -> Iterator[None]:
    """Fails if this process holds more descriptors or threads after the module than before it (G4)."""
    # Starts one server before the first count: gRPC and the shared loop keep some descriptors until the process ends.
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
    """Fails if a server is not in its former state after the test, or if a call of the test broke a rule of the API."""
    FINDINGS.take()
    pid = os.getpid()
    before = {served: Level.of(served) for served in LIVE if served.is_checked}
    yield
    problems = [problem for served in LIVE if served in before for problem in problems_of(served, before[served])]
    # Read last, so that it includes findings of the canary's own calls.
    problems += FINDINGS.take()
    assert os.getpid() == pid, "G1"
    if problems:
        pytest.fail("; ".join(problems), pytrace=False)
