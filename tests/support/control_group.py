"""A process under a limit of memory, as a container has it: a control group, where one can be made."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
# Version 1 has a tree for memory alone.
PLACES = ((MOUNT / "memory", "memory.limit_in_bytes"), (MOUNT, "memory.max"))


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Sequence[str]]:
    """Words of a command that runs the one after it under the limit; none where no group can be made.

    Whoever calls then holds the process's peak against the limit: what is beyond it in a group is killed.
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
            with contextlib.suppress(OSError):  # its process may take a moment to go
                group.rmdir()
        return
    yield ()


def peak_bytes(pid: int) -> int:
    """The most memory that a living process has had resident, its files' pages too."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
