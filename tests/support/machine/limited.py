"""Sets resource limits of a process, at its start and while it runs."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

MIB = 1 << 20


def limited(**limits: int) -> Sequence[str]:
    """Returns a command prefix that sets limits, named as in prlimit's options, such as nofile=64."""
    program = shutil.which("prlimit")
    if program is None:
        pytest.skip("prlimit is not installed")
    return [program, *(f"--{name}={value}" for name, value in limits.items())]


def address_bytes(pid: int) -> int:
    """Returns the bytes of address space that a process has mapped."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def limit_growth(pid: int, n_bytes: int) -> None:
    """Limits the process to `n_bytes` of address space beyond what it has mapped now."""
    limit = address_bytes(pid) + n_bytes
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
