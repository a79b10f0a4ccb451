"""How an engine process ended, and whether what it did can be the cause."""

from __future__ import annotations

import signal
from dataclasses import dataclass

# The signals and the status with which a process ends by its own fault.
FAULTS = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT))
FATAL_STATUS = 70


@dataclass(frozen=True, slots=True)
class Death:
    """The end of an engine process: by a signal, or with a status."""

    signal: int | None = None
    status: int | None = None
    # It hung, and its supervisor ended it.
    by_watchdog: bool = False
    # The kernel ended it.
    for_memory: bool = False

    @property
    def cause(self) -> str:
        """One of DEATH_CAUSES."""
        if self.by_watchdog:
            return "hang"
        return "memory" if self.for_memory else "fault" if self.is_fault else "other"

    @property
    def is_fault(self) -> bool:
        """Whether what it did can be the cause. Others can end it too."""
        return self.for_memory or self.may_damage

    @property
    def may_damage(self) -> bool:
        """Whether what it has in memory can be the cause."""
        return self.by_watchdog or self.signal in FAULTS or self.status == FATAL_STATUS
