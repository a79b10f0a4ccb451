"""Brings the engine's events into the event loop: its descriptor is watched, and one drain serves every stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from imp_service.core import EngineClient, Error


class EngineEvents:
    """Attached for as long as the client is open."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: EngineClient, on_fault: Callable[[Error], None]
    ) -> None:
        """`on_fault` is called once, where the device breaks."""
        self._loop = loop
        self._client = client
        self._on_fault = on_fault
        self._has_told_fault = False
        self._descriptor = client.fileno()
        loop.add_reader(self._descriptor, self._dispatch)

    def _dispatch(self) -> None:
        if self._client.is_closed:
            return
        try:
            self._client.dispatch()
        except Exception:
            # One stream's bug; the events behind it are others', and the descriptor does not ring for them again.
            self._loop.call_soon(self._dispatch)
            raise
        if self._client.fault is not None and not self._has_told_fault:
            self._has_told_fault = True
            self._on_fault(self._client.fault)

    def detach(self) -> None:
        """Before the client is closed: its descriptor goes with it."""
        self._loop.remove_reader(self._descriptor)
