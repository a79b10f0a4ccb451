"""The listeners of a front: they are bound first, and answer from start() to stop()."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from imp_service.config import Settings
from imp_service.config.address import Address
from imp_service.config.server_settings import DrainSettings
from imp_service.front.relay import Front
from imp_service.http_api.listener import Listener
from imp_service.http_api.tls import server_context
from imp_service.serving.listening import bind_socket, checked_http
from imp_service.serving.security.identity_files import read_identity
from imp_service.serving.security.reloaded_files import FileWatcher
from imp_service.telemetry.log import Log

# Time to send the last bytes.
LAST_SECONDS = 1.0
# How often the end of a drain is looked for.
CHECK_SECONDS = 0.05


async def until_drained(front: Front, drain: DrainSettings) -> None:
    """Returns when the delay of the drain is over and no request is open, at the latest after its grace."""
    await asyncio.sleep(drain.delay.total_seconds())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain.grace.total_seconds()):
            while front.n_open:
                await asyncio.sleep(CHECK_SECONDS)


class FrontServer:
    """On the event loop's thread."""

    def __init__(self, settings: Settings, log: Log) -> None:
        """Binds the addresses of listen.http. Raises ListenError, and ConfigError for the files of TLS."""
        self._settings = settings
        self._identity = read_identity(settings.tls, log)
        self._watcher: FileWatcher | None = None
        self._listeners: list[Listener] = []
        self._bound: list[tuple[socket.socket, Address]] = []
        try:
            for address in checked_http(settings.listen, log):
                listening, text = bind_socket(address)
                self._bound.append((listening, Address(text)))
        except BaseException:
            self._release()
            raise

    @property
    def addresses(self) -> list[str]:
        """The bound addresses, with the ports that were chosen."""
        return [address.text for _, address in self._bound]

    async def start(self, front: Front) -> None:
        """Accepts connections from now on."""
        tls = None
        if self._identity is not None:
            tls = server_context(self._identity)
            self._watcher = FileWatcher([self._identity.check_files])
        for listening, address in self._bound:
            listener = front.listener(listening, self._settings, None if address.is_unix else tls)
            await listener.start()
            self._listeners.append(listener)

    async def stop(self) -> None:
        """Takes no new connections, and ends those that are open."""
        if self._watcher is not None:
            self._watcher.stop()
        for listener in self._listeners:
            await listener.stop(LAST_SECONDS)
        self._release()

    def _release(self) -> None:
        while self._bound:
            listening, address = self._bound.pop()
            listening.close()
            if address.socket_path is not None:
                address.socket_path.unlink(missing_ok=True)
