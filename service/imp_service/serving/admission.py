"""The line before the engine: who may still join it, judged before any text is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from imp_service.generation.validate import invalid
from imp_service.serving.refusal import Refusal

Clock = Callable[[], float]
# Of the newest interval in the mean of those before it.
NEWEST = 0.2


class WaitingLine:
    """Counts sequences, as the engine does. On the event loop's thread.

    How long one waits is told by how the line has moved: the mean time between two of its requests that begin, while
    others waited. That holds whatever they wait for: places in a step, prefill, or blocks.
    """

    def __init__(self, max_waiting: int, clock: Clock) -> None:
        self._max_waiting = max_waiting
        self._clock = clock
        # Sequences whose prompt is being read: they will join the engine's queue.
        self.n_reading = 0
        # Seconds for one sequence to begin.
        self._pace: float | None = None
        self._moved_at = 0.0
        self._is_moving = False

    @contextmanager
    def place(self, n_sequences: int, n_queued: int, time_remaining: float | None) -> Iterator[None]:
        """Holds a place while a prompt is read. `n_queued` sequences wait in the engine. Raises QUEUE_FULL,
        and FIELD_INVALID where no line is long enough."""
        if n_sequences > self._max_waiting:
            # They wait together, for a step at least: repeating it would never help.
            raise invalid(
                "num_sequences", f"{n_sequences}, expected at most scheduler.max_waiting = {self._max_waiting}"
            )
        n_ahead = n_queued + self.n_reading
        if n_ahead + n_sequences > self._max_waiting:
            raise Refusal(
                "QUEUE_FULL",
                f"{n_ahead} sequences wait and {n_sequences} would join them, "
                f"at most scheduler.max_waiting = {self._max_waiting} may",
                {"bound": "scheduler.max_waiting"},
                retry_after=self.estimated_wait(n_ahead) or None,
            )
        wait = self.estimated_wait(n_ahead)
        if time_remaining is not None and wait > time_remaining:
            raise Refusal(
                "QUEUE_FULL",
                f"about {wait:.2f} s of waiting are ahead, but the deadline is in {time_remaining:.2f} s",
                {"bound": "deadline", "estimated_wait_ms": str(round(wait * 1000))},
                retry_after=wait - time_remaining,
            )
        self.n_reading += n_sequences
        try:
            yield
        finally:
            self.n_reading -= n_sequences

    def moved(self, n_sequences: int, n_queued: int) -> None:
        """A request of so many sequences has begun, and `n_queued` still wait."""
        now = self._clock()
        if self._is_moving:
            pace = (now - self._moved_at) / n_sequences
            self._pace = pace if self._pace is None else self._pace + NEWEST * (pace - self._pace)
        self._moved_at, self._is_moving = now, n_queued > 0

    def estimated_wait(self, n_ahead: int) -> float:
        """Seconds until it is the turn of one that comes now; 0 where nothing tells that it must wait."""
        if not n_ahead or self._pace is None:
            return 0.0
        # A line that has come to a stand moves no faster than it does now.
        stands_for = self._clock() - self._moved_at if self._is_moving else 0.0
        return max(n_ahead * self._pace, stands_for)
