"""Admission to the engine's queue, decided before a prompt is tokenized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from imp_service.api.errors import invalid
from imp_service.serving.refusal import Refusal

Clock = Callable[[], float]
# The weight of the newest interval in the moving average.
NEWEST_WEIGHT = 0.2


class Admission:
    """Counts sequences, as the engine does. On the event loop's thread.

    The wait is estimated from the mean time between the starts of two requests while others waited. That holds for
    every cause of the wait: places in a step, prefill, or blocks.
    """

    def __init__(self, max_waiting: int, clock: Clock) -> None:
        self._max_waiting = max_waiting
        self._clock = clock
        # Sequences whose prompt is being tokenized: they will join the engine's queue.
        self.n_reading = 0
        # Seconds for one sequence to begin.
        self._pace: float | None = None
        self._moved_at = 0.0
        self._is_moving = False

    @contextmanager
    def admit(self, n_sequences: int, n_queued: int, time_remaining: float | None) -> Iterator[None]:
        """Reserves places in the queue within the `with` block. `n_queued` sequences wait in the engine.

        Raises QUEUE_FULL, or FIELD_INVALID if the queue can never hold so many sequences.
        """
        if n_sequences > self._max_waiting:
            # They wait together for at least one step, so a retry would never succeed.
            raise invalid(
                "num_sequences", f"{n_sequences}, expected at most scheduler.max_waiting = {self._max_waiting}"
            )
        n_ahead = n_queued + self.n_reading
        if n_ahead + n_sequences > self._max_waiting:
            raise Refusal(
                "QUEUE_FULL",
                f"{n_ahead} sequences are waiting, and the request adds {n_sequences}: more than "
                f"scheduler.max_waiting = {self._max_waiting}",
                {"bound": "scheduler.max_waiting"},
                retry_after=self.estimated_wait(n_ahead) or None,
            )
        wait = self.estimated_wait(n_ahead)
        if time_remaining is not None and wait > time_remaining:
            raise Refusal(
                "QUEUE_FULL",
                f"the request would wait about {wait:.2f} s, but its deadline is in {time_remaining:.2f} s",
                {"bound": "deadline", "estimated_wait_ms": str(round(wait * 1000))},
                retry_after=wait - time_remaining,
            )
        self.n_reading += n_sequences
        try:
            yield
        finally:
            self.n_reading -= n_sequences

    def began(self, n_sequences: int, n_queued: int) -> None:
        """A request of `n_sequences` sequences has begun, and `n_queued` sequences still wait."""
        now = self._clock()
        if self._is_moving:
            pace = (now - self._moved_at) / n_sequences
            self._pace = pace if self._pace is None else self._pace + NEWEST_WEIGHT * (pace - self._pace)
        self._moved_at, self._is_moving = now, n_queued > 0

    def estimated_wait(self, n_ahead: int) -> float:
        """Estimated seconds until a sequence that arrives now begins; 0 without data."""
        if not n_ahead or self._pace is None:
            return 0.0
        # If the queue has not moved for longer than the mean, this one waits at least as long.
        waited = self._clock() - self._moved_at if self._is_moving else 0.0
        return max(n_ahead * self._pace, waited)
