"""Admission to the engine's queue, decided before a prompt is tokenized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from imp_service.api.errors import invalid
from imp_service.serving.refusal import Refusal

Clock = Callable[[], float]
# Of a payer, with the sequences that are about to come, its own and all: how many more may come, and how many begin
# before them.
PlaceOf = Callable[[str, int, int], tuple[int, int]]
# The weight of the newest interval in the moving average.
NEWEST_WEIGHT = 0.2


class Admission:
    """Counts sequences, as the engine does, by who pays for them. On the event loop's thread.

    The wait is estimated from the mean time between the starts of two requests while others waited. That holds for
    every cause of the wait: places in a step, prefill, or blocks.
    """

    def __init__(self, max_waiting: int, place_of: PlaceOf, clock: Clock) -> None:
        self._max_waiting = max_waiting
        self._place_of = place_of
        self._clock = clock
        # Sequences whose prompt is being tokenized, by payer: they will join the engine's queue.
        self._reading: Counter[str] = Counter()
        # Seconds for one sequence to begin.
        self._pace: float | None = None
        self._moved_at = 0.0
        self._is_moving = False

    @property
    def n_reading(self) -> int:
        """Sequences whose prompt is being tokenized."""
        return self._reading.total()

    @contextmanager
    def admit(self, payer: str, n_sequences: int, time_remaining: float | None) -> Iterator[None]:
        """Reserves places in the queue within the `with` block.

        Raises QUEUE_FULL, or FIELD_INVALID if the queue can never hold so many sequences.
        """
        if n_sequences > self._max_waiting:
            # They wait together for at least one step, so a retry would never succeed.
            raise invalid(
                "num_sequences", f"{n_sequences}, expected at most scheduler.max_waiting = {self._max_waiting}"
            )
        n_left, n_ahead = self._place_of(payer, self._reading[payer], self.n_reading)
        if n_sequences > n_left:
            raise Refusal(
                "QUEUE_FULL",
                f"{n_left} places of the queue are left, and the request adds {n_sequences} to the sequences that "
                f"wait: more than scheduler.max_waiting = {self._max_waiting}",
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
        self._reading[payer] += n_sequences
        try:
            yield
        finally:
            self._reading[payer] -= n_sequences
            if not self._reading[payer]:
                del self._reading[payer]

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
