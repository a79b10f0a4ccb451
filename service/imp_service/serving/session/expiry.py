"""Ends sessions that nobody uses, and computes how long until that frees memory for others."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Iterable

from imp_service.serving.session.held_session import HeldSession


def seconds_until_places(sessions: Iterable[HeldSession], now: float) -> float | None:
    """Seconds until the first of these sessions expires; None if all are in use."""
    return min((_seconds_left(each, now) for each in sessions if not each.is_busy), default=None)


def seconds_until_blocks(sessions: Iterable[HeldSession], n_blocks: int, block_tokens: int, now: float) -> float | None:
    """Seconds until expired sessions have freed `n_blocks` blocks; None if all idle sessions together hold fewer.

    A block that several sessions share is counted for each of them, so it may take longer.
    """
    n_freed = 0
    for held in sorted((each for each in sessions if not each.is_busy), key=lambda each: each.expires_at):
        n_freed += -(-held.position // block_tokens)
        if n_freed >= n_blocks:
            return _seconds_left(held, now)
    return None


def _seconds_left(held: HeldSession, now: float) -> float:
    """Rounded up to whole milliseconds, the unit that clients get."""
    return math.ceil(max(0.0, held.expires_at - now) * 1000) / 1000


# Fewer entries than this are not worth a sweep.
SMALL = 64
# A call sees at once that a session has expired; the timer may free its blocks this much later.
LEAST_DELAY = 0.01  # seconds


class SessionExpiry:
    """One timer for all sessions. Each has one entry, which may be earlier than its expiry: use does not move it."""

    def __init__(self, clock: Callable[[], float], expire: Callable[[HeldSession], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._entries: list[tuple[float, int, HeldSession]] = []
        self._numbers = itertools.count()
        self._n_watched = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def watch(self, held: HeldSession) -> None:
        """Ends the session when it expires. Call it again if its ttl has become shorter."""
        if held.wake_at is None:
            self._n_watched += 1
        elif held.expires_at >= held.wake_at:
            return
        self._enter(held, held.expires_at)
        self._sweep()
        self._set_timer()

    def forget(self, held: HeldSession) -> None:
        """The session has ended."""
        if held.wake_at is not None:
            held.wake_at = None
            self._n_watched -= 1
            self._sweep()

    def expire_due(self) -> None:
        """Ends every session that has expired."""
        now = self._clock()
        while self._entries and self._entries[0][0] <= now:
            at, _, held = heapq.heappop(self._entries)
            if held.wake_at != at:
                continue
            if held.is_busy:
                self._enter(held, now + held.ttl)  # its use ends later than now
            elif held.expires_at > now:
                self._enter(held, held.expires_at)
            else:
                self._expire(held)
        self._set_timer()

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._entries.clear()

    def _enter(self, held: HeldSession, at: float) -> None:
        held.wake_at = at
        heapq.heappush(self._entries, (at, next(self._numbers), held))

    def _sweep(self) -> None:
        """Removes entries of ended sessions if there are many."""
        if len(self._entries) > 2 * self._n_watched + SMALL:
            self._entries = [entry for entry in self._entries if entry[2].wake_at == entry[0]]
            heapq.heapify(self._entries)

    def _set_timer(self) -> None:
        if not self._entries:
            return
        at = self._entries[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(LEAST_DELAY, at - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire_due()
