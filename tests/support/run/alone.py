"""Lets a test that is marked `alone` run while no other worker process of this run tests."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

# The files to lock. Any two existing files work, because flock changes nothing in them.
ENTRANCE, ROOM = Path(__file__), Path(__file__).with_name("quick_run.py")


def turn(config: pytest.Config, is_alone: bool) -> AbstractContextManager[None]:
    """Excludes the other worker processes if the test must be alone; does nothing without workers."""
    return shared_turn(is_alone) if hasattr(config, "workerinput") else nullcontext()


@contextmanager
def shared_turn(is_alone: bool) -> Iterator[None]:
    """Holds a readers-writer lock: an `alone` test is the writer. While a writer waits, no new reader begins."""
    with ENTRANCE.open() as entrance, ROOM.open() as room:
        fcntl.flock(entrance, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(entrance, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)  # explicitly: a process that the test started may still have it open
