"""Reads how long the loop's thread waited for a processor, and how much time the host took from this machine."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

# The least time between two readings of the start, so that reading costs less than a thousandth.
EVERY_SECONDS = 0.01
NANOSECONDS = 1e9
FILES = ("/proc/thread-self/schedstat", "/proc/stat")
# In the first: processor time, wait for a processor, number of times that it got one.
WAIT = 1
# In the first line of the second: "cpu", user, nice, system, idle, iowait, irq, softirq, steal.
STEAL = 8


class Taken(NamedTuple):
    """Seconds during which the thread was ready but did not run, and seconds that the host took from all processors."""

    waited: float
    stolen: float


class TakenTime:
    """Measures what was taken from the thread that creates it. The files stay open: a test may use up descriptors."""

    def __init__(self) -> None:
        self._files = [_opened(path) for path in FILES]
        self._tick = 1 / os.sysconf("SC_CLK_TCK")
        self._due = 0.0
        self._before = (0, 0)

    def begin(self) -> None:
        """Begins a measurement, unless the last one began a moment ago."""
        now = time.monotonic()
        if now >= self._due:
            self._before, self._due = self._read(), now + EVERY_SECONDS

    def since(self) -> Taken:
        """Returns what was taken since the measurement began. It may have begun before the last begin()."""
        waited, ticks = (now - before for now, before in zip(self._read(), self._before, strict=True))
        # The kernel counts whole ticks, so up to one more may have been stolen.
        return Taken(waited / NANOSECONDS, (ticks + 1) * self._tick if ticks else 0.0)

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            if file is not None:
                os.close(file)

    def _read(self) -> tuple[int, int]:
        wait, stat = (b"" if file is None else os.pread(file, 200, 0) for file in self._files)
        return _field(wait, WAIT), _field(stat, STEAL)


def _opened(path: str) -> int | None:
    """Opens a file of the kernel; None if this kernel has no such file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _field(content: bytes, place: int) -> int:
    fields = content.split(b"\n", 1)[0].split()
    return int(fields[place]) if len(fields) > place else 0
