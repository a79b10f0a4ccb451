"""Whose turn it is among the processes that share the tests."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

# Any two files that are there will do: a lock leaves no trace on them.
ENTRANCE, ROOM = Path(__file__), Path(__file__).with_name("quick_run.py")


def turn(config: pytest.Config, is_alone: bool) -> AbstractContextManager[None]:
    """Holds other processes of this run off a test that must be alone."""
    return shared_turn(is_alone) if hasattr(config, "workerinput") else nullcontext()


@contextmanager
def shared_turn(is_alone: bool) -> Iterator[None]:
    """Held by one that is alone, or by any number of others. One that waits to be alone lets no other begin."""
    with ENTRANCE.open() as entrance, ROOM.open() as room:
        fcntl.flock(entrance, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(entrance, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)  # a process that the test started may have it open still
