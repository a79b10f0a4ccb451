"""What processes use of the CPUs, from /proc."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from support.machine.process_numbers import TICKS, stat_fields

SETTLES_WITHIN = 2.0


class OtherProcesses:
    """Measures from now on what all processes but the given ones use of the CPUs."""

    def __init__(self, *own: int) -> None:
        self._own = own
        self._began, self._spent = time.monotonic(), self._seconds()

    def cpus(self) -> float:
        """Returns the number of CPUs that they used on average."""
        return max(0.0, self._seconds() - self._spent) / (time.monotonic() - self._began)

    def _seconds(self) -> float:
        return busy_seconds() - sum(map(cpu_seconds, self._own))


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and of its children that have ended."""
    user, system, of_children, system_of_children = map(int, stat_fields(Path(f"/proc/{pid}"))[11:15])
    return (user + system + of_children + system_of_children) / TICKS


def busy_seconds() -> float:
    """Returns the busy time of all CPUs, including time that the hypervisor took."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def settle(pid: int) -> None:
    """Waits until a process's threads sleep: after their work they spin for a while."""
    tasks, give_up, pause = Path(f"/proc/{pid}/task"), time.monotonic() + SETTLES_WITHIN, threading.Event()
    while time.monotonic() < give_up and any(map(is_running, tasks.iterdir())):
        pause.wait(0.01)


def is_running(task: Path) -> bool:
    """Whether a thread runs, from its folder in /proc. A thread that has ended does not."""
    try:
        return stat_fields(task)[0] == "R"
    except (FileNotFoundError, ProcessLookupError):
        return False
