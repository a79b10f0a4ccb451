"""Deadlines of callers that pass at one place of a request, on a machine of any speed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from imp_service.serving import calls
from support.patience import HANGS_AFTER

# A busy machine is now and then this much slower than it was a moment ago.
STUMBLES = 5.0
# What it always has, so that one that was quick by chance is not held to it.
LEAST_SECONDS = 0.5


def deadline_beyond(get_there: Callable[[], object]) -> float:
    """Seconds in which a request surely comes to a place, told by how long `get_there` takes to bring one there."""
    began = time.monotonic()
    get_there()
    return LEAST_SECONDS + STUMBLES * (time.monotonic() - began)


def let_requests_travel(patch: pytest.MonkeyPatch) -> None:
    """However long a request took to come here, its caller's deadline is known for what it is.

    A caller's own timer starts before the server's; the server takes that for at most TRAVEL_SECONDS, and a busy
    machine for more.
    """
    patch.setattr(calls, "TRAVEL_SECONDS", HANGS_AFTER)
