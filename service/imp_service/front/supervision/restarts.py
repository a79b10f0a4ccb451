"""When an engine process that ended is started again, and when it is given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from imp_service.api.waits import doubling_wait

# Statuses of a start that no other start would change: usage, data, a missing file or device, input and output, rights,
# settings. Not 75: the process that uses an address may end. conf/systemd/imp.service has the same ones.
FINAL = frozenset((64, 65, 66, 69, 73, 74, 77, 78))
WINDOW_SECONDS = 600.0
# Within the window, without progress (see Advances).
MOST_DEATHS = 8
# The first restart is at once. The second waits so long, each further one twice as long.
FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0


class Restarts:
    """Counts deaths and refused starts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # When it died, since the last progress.
        self._deaths: deque[float] = deque()
        self._n_refused = 0

    def died(self) -> float | None:
        """The seconds until the next start; None if it is given up."""
        now = self._clock()
        self._deaths.append(now)
        while self._deaths[0] < now - WINDOW_SECONDS:
            self._deaths.popleft()
        return None if len(self._deaths) > MOST_DEATHS else _delay(len(self._deaths) - 1)

    def forget(self) -> None:
        """A caller got further: what was before counts no more."""
        self._deaths.clear()

    def started(self) -> None:
        """The system has started the process."""
        self._n_refused = 0

    def refused(self) -> float:
        """The system has not started the process. Returns the seconds until the next try."""
        self._n_refused += 1
        return _delay(self._n_refused)


def _delay(n: int) -> float:
    """The seconds before the start that follows the first by `n`."""
    return 0.0 if n == 0 else doubling_wait(FIRST_DELAY, n - 1, LONGEST_DELAY)
