"""The listeners of a front: they are bound first, and answer from start() to stop()."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from http import HTTPStatus
from pathlib import Path

from imp_service.config import Settings
from imp_service.config.address import Address
from imp_service.config.server_settings import DrainSettings
from imp_service.front.relay.connections import Trust, trust_in
from imp_service.front.relay.front import Front
from imp_service.front.relay.state import METRICS
from imp_service.http_api.exchange import Exchange
from imp_service.http_api.guard import Guard, HttpRefusal
from imp_service.http_api.listener import Listener, Server
from imp_service.http_api.tls import server_context
from imp_service.serving.listening import bind_socket, bindable, checked_http
from imp_service.serving.security.identity_files import read_identity
from imp_service.serving.security.reloaded_files import FileWatcher, ReloadedFiles
from imp_service.telemetry.log import Log

# Time to send the last bytes.
LAST_SECONDS = 1.0
# Connections of the listener of metrics.
MAX_SCRAPERS = 32
# How often the end of a drain is looked for.
CHECK_SECONDS = 0.05


async def until_drained(front: Front, drain: DrainSettings) -> None:
    """Returns when the delay of the drain is over and no request is open, at the latest after its grace."""
    await asyncio.sleep(drain.delay.total_seconds())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain.grace.total_seconds()):
            while front.n_open:
                await asyncio.sleep(CHECK_SECONDS)


def _scraped(front: Front, listening: socket.socket, address: Address, settings: Settings) -> Listener:
    """Answers with the metrics alone."""
    http, max_head = settings.http, settings.limits.max_metadata_bytes
    guard = Guard(http.hosts, http.origins, address.is_local, max_head)

    async def answer(exchange: Exchange) -> None:
        try:
            guard.check(exchange.pairs, has_host=exchange.is_http_1_1)
            if exchange.path != METRICS or exchange.method != "GET":
                raise HttpRefusal(HTTPStatus.NOT_FOUND, "not_found", f"only GET {METRICS} is answered here")
            await front.answer_scrape(exchange)
        except HttpRefusal as refused:
            await front.refuse(exchange, refused)

    return Listener(listening, Server(answer, http, MAX_SCRAPERS, max_head, 0), None)


class FrontServer:
    """On the event loop's thread."""

    def __init__(self, settings: Settings, log: Log, *, has_metrics: bool = False) -> None:
        """Binds the addresses of listen.http, and that of listen.metrics if the front answers there.

        Raises ListenError, and ConfigError for the files of TLS.
        """
        self._settings = settings
        self._identity = read_identity(settings.tls, log)
        ca = settings.front.ca
        self._authorities = None if ca is None else ReloadedFiles("front.ca", [Path(ca)], lambda: trust_in(ca), log)
        self._watcher: FileWatcher | None = None
        self._listeners: list[Listener] = []
        self._bound: list[tuple[socket.socket, Address]] = []
        self._scraped: tuple[socket.socket, Address] | None = None
        try:
            for address in checked_http(settings.listen, log):
                listening, text = bind_socket(address)
                self._bound.append((listening, Address(text)))
            if has_metrics and settings.listen.metrics is not None:
                listening, text = bind_socket(bindable(settings.listen.metrics, log))
                self._scraped = listening, Address(text)
        except BaseException:
            self._release()
            raise

    @property
    def addresses(self) -> list[str]:
        """The bound addresses, with the ports that were chosen."""
        return [address.text for _, address in self._bound]

    @property
    def metrics_address(self) -> str | None:
        """The bound address of metrics."""
        return None if self._scraped is None else self._scraped[1].text

    @property
    def trust(self) -> Trust | None:
        """The authorities of front.ca as its file is now; None: those of the system."""
        files = self._authorities
        return None if files is None else lambda: files.value

    async def start(self, front: Front) -> None:
        """Accepts connections from now on."""
        tls = None
        if self._identity is not None:
            tls = server_context(self._identity)
        if files := [each.check_files for each in (self._identity, self._authorities) if each is not None]:
            self._watcher = FileWatcher(files)
        for listening, address in self._bound:
            self._listeners.append(front.listener(listening, self._settings, None if address.is_unix else tls))
        if self._scraped is not None:
            self._listeners.append(_scraped(front, *self._scraped, self._settings))
        for listener in self._listeners:
            await listener.start()

    async def stop(self) -> None:
        """Takes no new connections, and ends those that are open."""
        if self._watcher is not None:
            self._watcher.stop()
        for listener in self._listeners:
            await listener.stop(LAST_SECONDS)
        self._release()

    def _release(self) -> None:
        scraped = [] if self._scraped is None else [self._scraped]
        for listening, address in (*self._bound, *scraped):
            listening.close()
            if address.socket_path is not None:
                address.socket_path.unlink(missing_ok=True)
