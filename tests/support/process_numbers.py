"""Reads the memory, descriptors, threads and processor time of a process from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessNumbers:
    """A snapshot."""

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
    """The fields after the name, which may hold anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def thread_seconds(pid: int) -> dict[int, tuple[str, float]]:
    """Thread -> its name and its processor time in seconds, read in nanoseconds."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            found[int(task.name)] = ((task / "comm").read_text().strip(), nanoseconds / 1e9)
        except FileNotFoundError:
            continue  # ended meanwhile
    return found


def thread_switches(pid: int) -> dict[int, int]:
    """Thread -> the number of its context switches."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except FileNotFoundError:
            continue  # ended meanwhile
        found[int(task.name)] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found
