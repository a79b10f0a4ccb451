"""How long until idle sessions expire and free places or blocks: the retry delay of refused calls."""

from __future__ import annotations

import math
from collections.abc import Iterable

from imp_service.serving.held_session import HeldSession


def seconds_until_places(sessions: Iterable[HeldSession], now: float) -> float | None:
    """Seconds until the first of them expires; None if all are in use."""
    return min((_seconds_left(each, now) for each in sessions if not each.is_busy), default=None)


def seconds_until_blocks(sessions: Iterable[HeldSession], n_blocks: int, block_tokens: int, now: float) -> float | None:
    """Seconds until expiring sessions have freed so many blocks; None if all idle sessions hold fewer.

    A block that several sessions share counts for each of them, so that it may take longer.
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
