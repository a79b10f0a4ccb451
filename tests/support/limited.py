"""A process under limits of the kernel: as it starts, and while it runs."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

MIB = 1 << 20


def limited(**limits: int) -> Sequence[str]:
    """Words that go before a command's own; names as prlimit's options have them, such as nofile=64."""
    program = shutil.which("prlimit")
    if program is None:
        pytest.skip("prlimit is not installed")
    return [program, *(f"--{name}={value}" for name, value in limits.items())]


def address_bytes(pid: int) -> int:
    """Addresses that a process has mapped."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def limit_growth(pid: int, n_bytes: int) -> None:
    """From now on the process can map so much more."""
    limit = address_bytes(pid) + n_bytes
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
