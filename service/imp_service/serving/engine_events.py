"""Brings the engine's events into the event loop: its descriptor is watched, and one drain serves every stream."""

from __future__ import annotations

import asyncio

from imp_service.core import EngineClient


class EngineEvents:
    """Attached for as long as the client is open."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: EngineClient) -> None:
        self._loop = loop
        self._descriptor = client.fileno()
        loop.add_reader(self._descriptor, client.dispatch)

    def detach(self) -> None:
        """Before the client is closed: its descriptor goes with it."""
        self._loop.remove_reader(self._descriptor)
