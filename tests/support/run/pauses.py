"""Pauses between two looks at a process, and those that are what a test is about, such as a process that is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import threading

# Seconds between two looks.
LOOK = 0.005


def pause(seconds: float = LOOK) -> None:
    """Waits. Holds an event loop, if one runs."""
    threading.Event().wait(seconds)


async def pause_loop(seconds: float = LOOK) -> None:
    """Waits while the event loop runs."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
