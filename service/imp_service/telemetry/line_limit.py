"""Limits the lines of each event per second; counts further lines and reports the count with the next line."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Second:
    began: float
    n_lines: int = 0
    n_suppressed: int = 0


class LineLimit:
    """Counts lines for each event. Events are fixed words, so there are few."""

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._events: dict[str, _Second] = {}
        self.n_suppressed = 0

    def set_limit(self, per_second: int) -> None:
        """Sets the limit from now on."""
        self._per_second = per_second

    def allow(self, event: str) -> int | None:
        """None if the line exceeds the limit; else the number of suppressed lines since the last one."""
        now = self._clock()
        second = self._events.setdefault(event, _Second(now))
        if now - second.began >= 1.0:
            second.began, second.n_lines = now, 0
        if second.n_lines >= self._per_second:
            second.n_suppressed += 1
            self.n_suppressed += 1
            return None
        second.n_lines += 1
        n, second.n_suppressed = second.n_suppressed, 0
        return n

    def take_suppressed(self) -> dict[str, int]:
        """The suppressed lines that are not reported yet, by event."""
        found = {event: second.n_suppressed for event, second in self._events.items() if second.n_suppressed}
        for second in self._events.values():
            second.n_suppressed = 0
        return found
