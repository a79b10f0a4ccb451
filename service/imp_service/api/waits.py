"""How long to wait before something that has failed is tried again."""

from __future__ import annotations

# More than any wait needs. Without a bound, the power would overflow one day.
MOST_DOUBLINGS = 32


def doubling_wait(first: float, n_before: int, longest: float) -> float:
    """Seconds of the wait that follows `n_before` others: each is twice as long as the one before it."""
    return min(first * 2.0 ** min(n_before, MOST_DOUBLINGS), longest)
