"""Finds work whose time grows faster than the size of its input, on a machine of any speed and load."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

# Ten times the input takes about ten times as long if the time is linear, and a hundred times if it is quadratic.
SCALE = 10
LINEAR = 40
# A measurement that another process disturbed is repeated. Quadratic work fails each of them.
ATTEMPTS = 5
# Work that takes this long was hardly disturbed, and is not repeated.
LONG_SECONDS = 1.0


def growth(work: Callable[[int], object], n: int) -> float:
    """Returns how many times longer `work(10 * n)` takes than `work(n)`: at most LINEAR if its time is linear.

    It is processor time of this thread. `work(n)` must take so long that its fixed costs hardly count.
    """
    found = []
    for _ in range(ATTEMPTS):
        short = min(seconds(lambda: work(n)) for _ in range(3))
        long = seconds(lambda: work(SCALE * n))
        found.append(long / short)
        if found[-1] <= LINEAR or long > LONG_SECONDS:
            break
    return min(found)


def seconds(work: Callable[[], object]) -> float:
    """Returns the processor time of this thread that the work takes, without garbage collection."""
    gc.disable()
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        gc.enable()
