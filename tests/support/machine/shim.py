"""A preloaded library that lets a test shift the wall clock of a process and make its reads fail."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")
FIELDS = struct.Struct("3q")  # seconds ahead, good reads, reads so far; the layout in shim.c


class Shim:
    """The library, compiled into a folder. Processes that start with `environment` load it."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no C compiler")
        library, orders = folder / "shim.so", folder / "shim.orders"
        words = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(words, check=True)
        orders.write_bytes(FIELDS.pack(0, -1, 0))
        with orders.open("r+b") as file:
            self._orders = mmap.mmap(file.fileno(), FIELDS.size)
        self.environment = {"LD_PRELOAD": str(library), "SHIM_ORDERS": str(orders)}

    def set_wall_clock_ahead(self, seconds: int) -> None:
        """Shifts the wall clock by this many seconds, which may be negative."""
        self._orders[:8] = struct.pack("q", seconds)

    def fail_reads_after(self, n_good: int) -> None:
        """Makes pread fail with EIO after the first `n_good` calls."""
        self._orders[8:16] = struct.pack("q", n_good)

    @property
    def n_reads(self) -> int:
        """The number of pread calls so far."""
        (_, _, n_reads) = FIELDS.unpack(self._orders[: FIELDS.size])
        return int(n_reads)
