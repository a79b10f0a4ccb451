"""A front in the loop of a test, and what its clients get."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError, ClientSession, TCPConnector

from imp_service.config import read_settings
from imp_service.config.address import Address
from imp_service.config.server_settings import LogSettings
from imp_service.front.relay.connections import trust_in
from imp_service.front.relay.front import Front
from imp_service.front.relay.state import FrontOptions
from imp_service.front.relay.upstreams import Upstreams
from imp_service.http_api.listener import Listener
from imp_service.serving.listening import bind_socket
from imp_service.telemetry.log import Log
from support.run.pauses import pause_loop


@dataclass(frozen=True)
class Got:
    """What a client got. `is_whole`: the response ended as HTTP says."""

    status: int
    headers: dict[str, str]
    content: bytes
    is_whole: bool = True

    @property
    def error(self) -> dict[str, Any]:
        """The error in the body."""
        return dict(json.loads(self.content)["error"])


class FrontServed:
    """A front that listens."""

    def __init__(self, front: Front, listener: Listener, port: int, session: ClientSession) -> None:
        self.front = front
        self.listener = listener
        self.port = port
        self.session = session
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str, method: str = "GET", **how: Any) -> Got:
        """Sends a request, and returns the whole answer."""
        async with self.session.request(method, self.url + path, **how) as response:
            content = b""
            headers = {name.lower(): value for name, value in response.headers.items()}
            try:
                async for piece in response.content.iter_any():
                    content += piece
            except ClientError:
                return Got(response.status, headers, content, is_whole=False)
            return Got(response.status, headers, content)

    async def stream(self, path: str = "/v1/chat/completions", **fields: Any) -> Got:
        """Asks for a stream."""
        return await self.get(path, "POST", json={"stream": True, **fields})


@contextlib.asynccontextmanager
async def front_served(
    addresses: Sequence[str], *settings: str, ca: str | None = None, **options: Any
) -> AsyncIterator[FrontServed]:
    """Serves a front before these upstreams within the block. `ca` is the file of their authorities."""
    log = Log(LogSettings(level="error"))
    upstreams = Upstreams(addresses, log=log, trust=None if ca is None else lambda: trust_in(ca))
    front = Front(upstreams, FrontOptions(**options), log)
    read = read_settings(None, settings, variables={}).settings
    listening, bound = bind_socket(Address("127.0.0.1:0"))
    listening.listen(1024)
    listener = front.listener(listening, read, None)
    await upstreams.start()
    await listener.start()
    try:
        async with ClientSession(connector=TCPConnector(limit=0)) as session:
            yield FrontServed(front, listener, Address(bound).port, session)
    finally:
        await listener.stop(0.0)
        await upstreams.stop()
        log.close()


def plain(content: bytes) -> list[str]:
    """The events without what differs between two equal requests: ids, times and cached tokens.

    The choices of one request take turns as they like, so their events are sorted by choice.
    """
    text = re.sub(r"[0-9a-f]{16}(?=[\"_-])", "ID", content.decode())
    text = re.sub(r'"(created|created_at|cached_tokens|cache_read_input_tokens|input_tokens)":\d+', r'"\1":0', text)
    events = [each for each in text.split("\n\n") if each and not each.startswith(":")]
    if "chat.completion.chunk" not in text:
        return events
    return sorted(
        events, key=lambda each: ((found := re.search(r'"index":(\d+),"delta"', each)) and int(found[1])) or 0
    )


async def ready(served: FrontServed, n: int = 1) -> None:
    """Waits until so many upstreams are ready."""
    while sum(each.is_ready for each in served.front.upstreams.all) < n:
        await pause_loop(0.01)
