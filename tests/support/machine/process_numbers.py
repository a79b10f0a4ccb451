"""Reads the memory, descriptors, threads and CPU time of a process from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# A thread that ends meanwhile has no file to open, or an open file that cannot be read.
ENDED = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True)
class ProcessNumbers:
    """The numbers of a process at one time."""

    resident_bytes: int
    n_descriptors: int
    n_threads: int
    cpu_seconds: float

    @classmethod
    def of(cls, pid: int) -> ProcessNumbers:
        """Reads the numbers of a running process."""
        folder = Path(f"/proc/{pid}")
        pages = int((folder / "statm").read_text().split()[1])
        times = stat_fields(folder)
        return cls(
            pages * os.sysconf("SC_PAGE_SIZE"),
            sum(1 for _ in (folder / "fd").iterdir()),
            sum(1 for _ in (folder / "task").iterdir()),
            (int(times[11]) + int(times[12])) / TICKS,
        )


def stat_fields(folder: Path) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name, which may contain anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def thread_seconds(pid: int) -> dict[int, tuple[str, float]]:
    """Returns a map from thread to its name and its CPU time in seconds."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            found[int(task.name)] = ((task / "comm").read_text().strip(), nanoseconds / 1e9)
        except ENDED:
            continue
    return found


def thread_switches(pid: int) -> dict[int, int]:
    """Returns a map from thread to the number of its context switches."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except ENDED:
            continue
        found[int(task.name)] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found
