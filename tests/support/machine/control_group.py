"""Runs a process in a control group with a memory limit, as a container does, where the machine allows it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
# Version 1 has a separate tree for memory.
PLACES = ((MOUNT / "memory", "memory.limit_in_bytes"), (MOUNT, "memory.max"))


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Sequence[str]]:
    """Yields a command prefix that applies the limit; empty if the machine allows no group.

    Without a group the caller compares the peak of the process with the limit. In a group the kernel kills the process.
    """
    for parent, name in PLACES:
        group = parent / f"imp-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit_bytes))
        except OSError:
            group.rmdir()
            continue
        try:
            yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        finally:
            with contextlib.suppress(OSError):  # its process may take a moment to end
                group.rmdir()
        return
    yield ()


def peak_bytes(pid: int) -> int:
    """Returns the peak resident memory of a running process, including the pages of mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
