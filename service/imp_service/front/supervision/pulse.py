"""Whether an engine process still answers. A process that gets little time, or a machine that slept, is no hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from imp_service.config.machine import throttled_seconds, waiting_seconds

CHECK_SECONDS = 1.0
# Without an answer for 5 s, it is asked three times more, and then it counts as hung.
LONGEST_SILENCE = 5.0 + 2 * CHECK_SECONDS
# Until its first answer after it serves. It answers while it loads its model, but has to start Python first.
LONGEST_START = 60.0
# Answers in a row that say that the engine is stuck.
STUCK_ANSWERS = 3
# A second in which the kernel held the process back counts less, but at least this.
LEAST_SHARE = 0.1
REQUEST = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
STUCK = b"503"


class ProbeAnswer(Enum):
    """What a process answered."""

    ALIVE = "alive"
    # Its event loop answers, but its engine makes no step.
    STUCK = "stuck"


class HeldBack:
    """What keeps a process from running: a quota of processor time, or other processes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._throttled, self._waiting = throttled_seconds(), waiting_seconds(pid)

    def __call__(self) -> float:
        """The seconds since the last call for which it could not run; of its threads, the one that waited most."""
        throttled, waiting = throttled_seconds(), waiting_seconds(self._pid)
        more = [seconds - self._waiting.get(thread, 0.0) for thread, seconds in waiting.items()]
        held = max(throttled - self._throttled, *more, 0.0)
        self._throttled, self._waiting = throttled, waiting
        return held


class Pulse:
    """Counts the seconds without an answer, of those in which the process could have given one.

    The counter follows neither a clock that jumps when a machine sleeps, nor the seconds in which this process itself
    did not run.
    """

    def __init__(self, clock: Callable[[], float], held_back: Callable[[], float]) -> None:
        """`held_back` returns the seconds since its last call for which the process could not run."""
        self._clock, self._held_back = clock, held_back
        self._at = clock()
        self._silence = 0.0
        self._n_stuck = 0
        self._serves = False

    def answered(self, answer: ProbeAnswer, *, serves: bool) -> None:
        """It has answered. `serves`: it has loaded its model, and will answer soon from now on."""
        self._silence = 0.0
        self._n_stuck = self._n_stuck + 1 if answer is ProbeAnswer.STUCK else 0
        self._serves = serves

    def tick(self) -> None:
        """Call it about every CHECK_SECONDS."""
        now = self._clock()
        passed, self._at = max(now - self._at, 0.0), now
        held = self._held_back()
        share = max(LEAST_SHARE, 1.0 - held / passed) if passed > 0 else 0.0
        self._silence += min(passed, 2 * CHECK_SECONDS) * share

    def why_hung(self) -> str:
        """Why the process counts as hung; empty if it does not."""
        if self._n_stuck >= STUCK_ANSWERS:
            return "its engine makes no step"
        longest = LONGEST_SILENCE if self._serves else LONGEST_START
        return f"no answer to /health/live for {longest:g} s" if self._silence >= longest else ""


async def ask(path: str) -> ProbeAnswer | None:
    """What the process that listens on this Unix socket answers; None if it does not, after a while."""
    writer = None
    try:
        async with asyncio.timeout(LONGEST_SILENCE):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(REQUEST)
            words = (await reader.readline()).split()
    except (OSError, TimeoutError, ValueError):
        return None
    finally:
        if writer is not None:
            writer.close()
    if len(words) < 2:
        return None
    return ProbeAnswer.STUCK if words[1] == STUCK else ProbeAnswer.ALIVE
