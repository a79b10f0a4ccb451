"""The phases of a server, and whether it takes calls in each."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from imp_service.serving.refusal import Refusal

RETRY_SECONDS = 1.0


class Phase(Enum):
    """In their usual order. A drain may be resumed until STOPPED."""

    LOADING = "loading"
    SERVING = "serving"
    # No longer ready, but calls are still accepted until load balancers notice.
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


def loading() -> Refusal:
    """The error of calls that come before the model is loaded."""
    return Refusal("LOADING", "the model is being loaded", retry_after=RETRY_SECONDS)


def draining() -> Refusal:
    """The error of calls that come during a drain."""
    return Refusal("DRAINING", "the server is draining and accepts no new calls", retry_after=0.0)


class Lifecycle:
    """The current phase, and its observers. Used on the event loop's thread only."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self._is_loaded = False
        self._watchers: list[Callable[[Phase], None]] = []

    @property
    def is_ready(self) -> bool:
        """Whether the server should get new work."""
        return self.phase is Phase.SERVING

    def require_open(self) -> None:
        """Raises LOADING or DRAINING if calls are refused."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            raise draining()
        if not self._is_loaded:
            raise loading()

    def loaded(self) -> None:
        """The model is loaded and has generated tokens. A drain that has begun goes on."""
        self._is_loaded = True
        if self.phase is Phase.LOADING:
            self.become(Phase.SERVING)

    def resume(self) -> None:
        """Ends a drain: back to SERVING, or LOADING without a model."""
        if self.phase is not Phase.STOPPED:
            self.become(Phase.SERVING if self._is_loaded else Phase.LOADING)

    def become(self, phase: Phase) -> None:
        """Enters a phase and calls every watcher."""
        if phase is not self.phase:
            self.phase = phase
            for watcher in list(self._watchers):
                watcher(phase)

    def watch(self, watcher: Callable[[Phase], None]) -> Callable[[], None]:
        """Calls `watcher` at every change from now on. Returns a function that ends this."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)
