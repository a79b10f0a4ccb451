"""Clients that ask for several streams at the same time, while something happens to their servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import ClientSession

from support.run.pauses import pause_loop
from support.servers.front_served import plain

# A path, and the body without `stream`.
StreamRequest = tuple[str, dict[str, Any]]


class DisturbedStreams:
    """One client for each request."""

    def __init__(self, url: str, session: ClientSession, requests: Sequence[StreamRequest]) -> None:
        self._url = url
        self._session = session
        self._requests = requests
        self._n_events = 0

    async def whole(self) -> list[list[str]]:
        """The events of each stream."""
        return await asyncio.gather(*(self._stream(number, *each) for number, each in enumerate(self._requests)))

    async def disturbed(self, disturb: Callable[[], object]) -> list[list[str]]:
        """The events of each stream, in whose middle something happens."""
        asking = asyncio.create_task(self.whole())
        n_before = self._n_events
        while self._n_events < n_before + 40:
            assert not asking.done()
            await pause_loop(0.001)
        disturb()
        return await asking

    async def _stream(self, number: int, path: str, body: dict[str, Any]) -> list[str]:
        # Otherwise gateways give each call an id of their own, which is part of the answer's.
        named = {"x-request-id": f"stream-{number}"}
        async with self._session.post(self._url + path, json={**body, "stream": True}, headers=named) as response:
            content = b""
            async for piece in response.content.iter_any():
                content += piece
                self._n_events += piece.count(b"\n\n")
            assert response.status == 200, content
            return plain(content)
