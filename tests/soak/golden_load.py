"""Clients that read answers one after the other while servers die, and compare each with its golden one."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.run.patience import HANGS_AFTER


@dataclass
class ClientState:
    """Of one client: what it has read so far, and its longest wait for something to come."""

    n_events: int = 0
    n_streams: int = 0
    # How often a stream went on, as far as the client sees it.
    n_resumed: int = 0
    longest_wait: float = 0.0
    came_at: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        """Something has come."""
        now = time.monotonic()
        self.longest_wait, self.came_at = max(self.longest_wait, now - self.came_at), now
        self.n_events += 1


class GoldenLoad(ABC):
    """The clients, each a thread."""

    def __init__(self, known: Sequence[tuple[Any, Any]], n: int) -> None:
        """`known`: requests with their golden answers."""
        self._known = known
        self._stop = threading.Event()
        self.problems: list[str] = []
        self.states = [ClientState() for _ in range(n)]
        self._threads = [threading.Thread(target=self._work, args=(i,)) for i in range(n)]
        for thread in self._threads:
            thread.start()

    @abstractmethod
    def read(self, number: int, asked: Any, state: ClientState) -> Any:
        """The answer to one client's request. Each part of it that comes is a tick of the state."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connections."""

    def may_end(self, error: Exception, n_events: int) -> bool:
        """Whether an answer may end so, of which so many parts came."""
        return False

    @property
    def n_streams(self) -> int:
        """Answers that came whole, and are the golden ones."""
        return sum(state.n_streams for state in self.states)

    @property
    def n_resumed(self) -> int:
        """How often streams went on, as far as the clients see it."""
        return sum(state.n_resumed for state in self.states)

    def events(self) -> list[int]:
        """What each client has read so far."""
        return [state.n_events for state in self.states]

    def wait_for_events(self, since: Sequence[int], judge: Callable[[Iterable[bool]], bool]) -> None:
        """Waits until any client, or all, have read more; `judge` is any() or all()."""
        give_up = time.monotonic() + HANGS_AFTER
        while not judge(now > before for now, before in zip(self.events(), since, strict=True)):
            assert time.monotonic() < give_up and not self.problems, f"nothing comes: {self.problems}"
            self._stop.wait(0.005)

    def stop(self) -> list[str]:
        """Ends it, each client after its answer; returns the problems."""
        self._stop.set()
        for thread in self._threads:
            thread.join(HANGS_AFTER)
        if any(thread.is_alive() for thread in self._threads):
            self.problems.append("a stream hangs")
        self.close()
        return self.problems

    def _work(self, number: int) -> None:
        rng, state = random.Random(number), self.states[number]
        while not self._stop.is_set():
            asked, whole = rng.choice(self._known)
            before = state.n_events
            try:
                found = self.read(number, asked, state)
            except Exception as error:
                n = state.n_events - before
                if not self.may_end(error, n):
                    self.problems.append(f"client {number}: a stream of {asked} was lost after {n} events: {error!r}")
                continue
            if found == whole:
                state.n_streams += 1
            else:
                self.problems.append(f"client {number}: {asked} gave {found}, expected {whole}")
