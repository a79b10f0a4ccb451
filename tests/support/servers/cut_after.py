"""A proxy before a server that cuts the next answer to a POST after a number of bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from support.run.pauses import pause_loop
from support.servers.scripted_engine import cut


@dataclass
class CutAfter:
    """Forwards to a port of this machine. `n_left`: bytes of the next answer to a POST; None: all of them."""

    target: int
    n_left: int | None = None
    n_cut: int = 0
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        task = asyncio.create_task(self._forward_requests(reader, to_server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(ConnectionError):
            while content := await from_server.read(65536):
                if self.n_left is not None and not content.startswith(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json"
                ):
                    content, n_more = content[: self.n_left], len(content)
                    self.n_left -= n_more
                    if self.n_left <= 0:
                        writer.write(content)
                        await pause_loop(0.005)
                        self.n_left = None
                        self.n_cut += 1
                        break
                writer.write(content)
                await writer.drain()
        cut(to_server)
        cut(writer)

    async def _forward_requests(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while content := await reader.read(65536):
                to_server.write(content)
                await to_server.drain()
            to_server.close()


@contextlib.asynccontextmanager
async def cut_after(target: int) -> AsyncIterator[CutAfter]:
    """Serves such a proxy within the block."""
    proxy = CutAfter(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
