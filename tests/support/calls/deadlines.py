"""Chooses deadlines that expire at a given point of a request, whatever the speed of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from imp_service.serving import calls
from support.run.patience import HANGS_AFTER

# A busy machine may suddenly become this many times slower.
MAX_SLOWDOWN = 5.0
# The least result, because the measured run may have been unusually fast.
LEAST_SECONDS = 0.5


def deadline_beyond(get_there: Callable[[], object]) -> float:
    """Returns seconds in which a request surely reaches a point. Measures how long `get_there` takes to reach it."""
    began = time.monotonic()
    get_there()
    return LEAST_SECONDS + MAX_SLOWDOWN * (time.monotonic() - began)


def let_requests_travel(patch: pytest.MonkeyPatch) -> None:
    """Makes the server recognize a caller's deadline, however long the request travelled.

    A caller's timer starts before the server's. The server allows a difference of TRAVEL_SECONDS, which a busy machine
    may exceed.
    """
    patch.setattr(calls, "TRAVEL_SECONDS", HANGS_AFTER)
