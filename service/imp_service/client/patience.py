"""When a call that failed is made again, and when its caller gives up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..api.waits import doubling_wait
from .failure import CallFailure
from .target import ACKNOWLEDGE, Target

# So many calls in a row that a server had may break without something new: a request that ends its servers does not
# end all of them. A proxy without a server breaks calls too, but no server had those.
MOST_FRUITLESS = 3
# Seconds for which a caller that had an answer waits for a server that takes its call.
PATIENCE_SECONDS = 30.0
# Seconds: the first wait for a server that is away, for one that refuses the call, and the longest.
RESUME_SECONDS, REFUSED_SECONDS, MOST_SECONDS = 0.1, 0.2, 3.0
# A request is not repeated if its server will be full for longer.
MOST_TOLD_SECONDS = 10.0
# The reason of a server that is about to end.
DRAINING = "DRAINING"
# With one of these codes and a time, a server says that it takes the call later, or that another one does.
_REFUSING_CODES = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")


def is_break(failure: CallFailure) -> bool:
    """Whether the server of a call went away, the proxy before it says so, or its device did."""
    is_cut = failure.code == failure.reason == "UNAVAILABLE" and not failure.is_unreachable
    return is_cut or failure.reason == "DEVICE_FAULT"


def is_refusal(failure: CallFailure) -> bool:
    """Whether no server was there, or one refuses the call for a while."""
    return failure.is_unreachable or (failure.retry_after is not None and failure.code in _REFUSING_CODES)


def is_soon(failure: CallFailure) -> bool:
    """Whether the server that refuses a call takes it soon, as far as it says."""
    return failure.retry_after is None or failure.retry_after <= MOST_TOLD_SECONDS


class Patience:
    """The failures of one call since something new came. `until`: when the caller's time is over, by the clock."""

    def __init__(self, attempts: int, until: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempts = attempts
        self._until = until
        self._clock = clock
        self.first: CallFailure | None = None
        self._since = 0.0
        self._n_failed = 0
        # Whether one of them broke before it brought something; and how many did so that a server had.
        self._has_broken = False
        self._n_fruitless = 0

    @property
    def time_left(self) -> float | None:
        """Seconds for the next call."""
        return None if self._until == math.inf else max(0.0, self._until - self._clock())

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """For the next call: behind a failure, its server is to say at once that it has the call."""
        return () if self.first is None else ACKNOWLEDGE

    def renew(self) -> None:
        """Something new came."""
        self.first, self._n_failed, self._has_broken, self._n_fruitless = None, 0, False, 0

    def wait(self, failure: CallFailure, *, is_fruitless: bool, is_patient: bool) -> float:
        """Seconds after which to call again. Raises the first failure if it is over.

        `is_fruitless`: the call broke before it brought something. `is_patient`: it waits for a server, as it does
        behind a call that broke; else servers refuse it as any other call.
        """
        now = self._clock()
        # The server of the first call was not asked to say that it has it.
        self._n_fruitless += is_fruitless and (self.first is None or failure.was_taken)
        if self.first is None:
            self.first, self._since = failure, now
        self._has_broken = self._has_broken or is_fruitless
        is_patient = is_patient or self._has_broken
        shortest = RESUME_SECONDS if is_patient else REFUSED_SECONDS
        # The first wait for a server is none.
        n_before = self._n_failed - is_patient
        own = doubling_wait(shortest, n_before, MOST_SECONDS) if n_before >= 0 else 0.0
        wait = max(failure.retry_after or 0.0, own)
        next_call = now + wait
        self._n_failed += 1
        is_last = next_call > self._since + PATIENCE_SECONDS if is_patient else self._n_failed >= self._attempts
        if is_last or self._n_fruitless >= MOST_FRUITLESS or next_call >= self._until:
            raise self.first
        return wait


def patience_of(target: Target, seconds: float | None) -> Patience:
    """That of a call which has so much time."""
    return Patience(target.attempts, math.inf if seconds is None else time.monotonic() + seconds)
