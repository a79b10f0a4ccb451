"""The phases of a server's life, and who may call in each."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from imp_service.serving.refusal import Refusal

RETRY_SECONDS = 1.0


class Phase(Enum):
    """In the order in which they come; a drain may be taken back until STOPPED."""

    LOADING = "loading"
    SERVING = "serving"
    # Not ready any more, but calls are still taken: routes need time to change.
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


def loading() -> Refusal:
    """What calls are told that come too early."""
    return Refusal("LOADING", "the model is being loaded", retry_after=RETRY_SECONDS)


def draining() -> Refusal:
    """What calls are told that come too late, or last too long."""
    return Refusal("DRAINING", "the server is draining and takes no new work", retry_after=0.0)


class Lifecycle:
    """The phase, and those who want to know of its changes. Touched on the event loop's thread only."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self._is_loaded = False
        self._watchers: list[Callable[[Phase], None]] = []

    @property
    def is_ready(self) -> bool:
        """Whether new work should be sent here."""
        return self.phase is Phase.SERVING

    def require_open(self) -> None:
        """Raises LOADING or DRAINING where no call is taken."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            raise draining()
        if not self._is_loaded:
            raise loading()

    def loaded(self) -> None:
        """The model is there and has shown that it works. A drain that has begun before goes on."""
        self._is_loaded = True
        if self.phase is Phase.LOADING:
            self.become(Phase.SERVING)

    def resume(self) -> None:
        """Back from a drain to where the server would be without it."""
        if self.phase is not Phase.STOPPED:
            self.become(Phase.SERVING if self._is_loaded else Phase.LOADING)

    def become(self, phase: Phase) -> None:
        """Enters a phase and tells every watcher."""
        if phase is not self.phase:
            self.phase = phase
            for watcher in list(self._watchers):
                watcher(phase)

    def watch(self, watcher: Callable[[Phase], None]) -> Callable[[], None]:
        """Calls `watcher` at every change from now on; what is returned ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)
