"""How many lines of one kind a second may have; what is beyond is counted, and told with the next one."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Second:
    began: float
    n_lines: int = 0
    n_suppressed: int = 0


class LineLimit:
    """A count for each event, of which there are few: they are words of ours."""

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._events: dict[str, _Second] = {}
        self.n_suppressed = 0

    def set_limit(self, per_second: int) -> None:
        """From now on."""
        self._per_second = per_second

    def admit(self, event: str) -> int | None:
        """None where the line is one too many; else how many were held back since the last one."""
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
        """What was held back and not yet told, by event."""
        found = {event: second.n_suppressed for event, second in self._events.items() if second.n_suppressed}
        for second in self._events.values():
            second.n_suppressed = 0
        return found
