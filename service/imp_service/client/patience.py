"""When a call that failed is made again, and when its caller gives up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from .failure import CallFailure
from .target import Target

# So many calls in a row may break without something new: a request that ends its servers does not end all of them.
MOST_FRUITLESS = 3
# Seconds for which a caller that had an answer waits for a server that takes its call.
PATIENCE_SECONDS = 30.0
# Seconds: the first wait for a server that is away, for one behind which a call broke without something new, for one
# that refuses the call, and the longest. Within the waits of calls that broke so, a server starts again.
RESUME_SECONDS, FRUITLESS_SECONDS, REFUSED_SECONDS, MOST_SECONDS = 0.1, 0.5, 0.2, 3.0
# A request is not repeated if its server will be full for longer.
MOST_TOLD_SECONDS = 10.0
# The reason of a server that is about to end.
DRAINING = "DRAINING"
# With one of these codes and a time, a server says that it takes the call later, or that another one does.
_REFUSING_CODES = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")


def is_break(failure: CallFailure) -> bool:
    """Whether a server took the call and went away, or its device did."""
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
        # Of these, calls that a server took and that broke before they brought something; and whether the last one did.
        self.n_fruitless = 0
        self._is_fruitless = False

    @property
    def time_left(self) -> float | None:
        """Seconds for the next call."""
        return None if self._until == math.inf else max(0.0, self._until - self._clock())

    def renew(self) -> None:
        """Something new came."""
        self.first, self._n_failed, self.n_fruitless = None, 0, 0

    def note(self, failure: CallFailure, *, is_fruitless: bool) -> None:
        """A call has failed. wait() follows."""
        if self.first is None:
            self.first, self._since = failure, self._clock()
        self.n_fruitless += is_fruitless
        self._is_fruitless = is_fruitless

    def wait(self, failure: CallFailure, *, is_patient: bool) -> float:
        """Seconds after which to call again. Raises the first failure if it is over.

        `is_patient`: it waits for a server; else servers refuse it as any other call.
        """
        first, now = self.first or failure, self._clock()
        shortest = REFUSED_SECONDS if not is_patient else FRUITLESS_SECONDS if self._is_fruitless else RESUME_SECONDS
        wait = max(failure.retry_after or 0.0, own_wait(self._n_failed - is_patient, shortest))
        next_call = now + wait
        self._n_failed += 1
        is_last = next_call > self._since + PATIENCE_SECONDS if is_patient else self._n_failed >= self._attempts
        if is_last or self.n_fruitless >= MOST_FRUITLESS or next_call >= self._until:
            raise first
        return wait


def patience_of(target: Target, seconds: float | None) -> Patience:
    """That of a call which has so much time."""
    return Patience(target.attempts, math.inf if seconds is None else time.monotonic() + seconds)


def own_wait(n_before: int, shortest: float) -> float:
    """Seconds to wait where the server names none, after so many such waits; below zero: the next call is at once."""
    return min(shortest * 2.0**n_before, MOST_SECONDS) if n_before >= 0 else 0.0
