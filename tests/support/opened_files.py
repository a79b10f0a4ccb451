"""Records with inotify which files of a directory any process opens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

IN_OPEN, IN_ISDIR = 0x20, 0x40000000
EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


@contextlib.contextmanager
def opened_files(directory: Path) -> Iterator[list[str]]:
    """Fills the list at the end of the block with the files in `directory` that were opened during the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0
    assert libc.inotify_add_watch(descriptor, os.fsencode(directory), IN_OPEN) >= 0
    names: list[str] = []
    try:
        yield names
        with contextlib.suppress(BlockingIOError):
            while True:
                names += parse(os.read(descriptor, 65536))
    finally:
        os.close(descriptor)


def parse(events: bytes) -> Iterator[str]:
    place = 0
    while place < len(events):
        _, mask, _, n_bytes = EVENT.unpack_from(events, place)
        name = events[place + EVENT.size : place + EVENT.size + n_bytes].rstrip(b"\0")
        place += EVENT.size + n_bytes
        if not mask & IN_ISDIR:
            yield os.fsdecode(name)
