"""The connections of a front to one upstream."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from aiohttp import (
    BaseConnector,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    UnixConnector,
)
from aiohttp.http import HttpProcessingError
from yarl import URL

from imp_service.config.address import Address
from imp_service.front.relay.names import Place
from imp_service.serving.security.identity_files import read_authorities

CONNECT_TIMEOUT = 2.0
# Shorter than http.idle_timeout, so that a server rarely closes a connection that is just being used again.
IDLE_SECONDS = 30.0
# Connections that are being opened.
MAX_OPENING = 32
# aiohttp holds up to twice as many unread bytes of a response.
READ_BYTES = 8 * 1024
# Of a response's head.
MAX_LINE_BYTES = 16 * 1024
# What fails if an upstream cannot be reached, ends, or does not speak HTTP.
FAILURES = (ClientError, OSError, HttpProcessingError, ValueError)
# The failures of TLS among them, which time does not heal.
TLS_FAILURES = (ClientSSLError,)
AUTOMATIC = ("accept", "accept-encoding", "content-type", "user-agent")


# The authorities in force, by which certificates of servers are judged.
Trust = Callable[[], ssl.SSLContext]


def trust_in(ca: str | None) -> ssl.SSLContext:
    """Trusts the authorities of a file, or those of the system. Raises ConfigError."""
    # PEM is ASCII. What stands between certificates may be anything.
    pem = None if ca is None else read_authorities("front.ca", Path(ca)).decode("ascii", errors="ignore")
    context = ssl.create_default_context(cadata=pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connections:
    """Opened as they are needed, and kept for a while."""

    def __init__(self, place: Place, trust: Trust) -> None:
        address = Address(place.address)
        self._session = _session(address)
        scheme = "http" if place.tls_name is None else "https"
        self._base = "http://upstream" if address.is_unix else f"{scheme}://{address.text}"
        self._tls_name, self._trust = place.tls_name, trust
        self._own_host = [] if place.own_host is None else [("host", place.own_host)]

    async def send(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: Any) -> ClientResponse:
        """The head of the response. `body`: bytes, or an iterator of them. Raises one of FAILURES.

        Without a `host`, the server gets its own.
        """
        tls = {} if self._tls_name is None else {"ssl": self._trust(), "server_hostname": self._tls_name}
        headers = [*headers]
        if not any(name == "host" for name, _ in headers):
            headers += self._own_host
        response = await self._session.request(
            method,
            URL(self._base + target, encoded=True),
            headers=headers,
            data=body,
            allow_redirects=False,
            skip_auto_headers=AUTOMATIC,
            **tls,  # type: ignore[arg-type]
        )
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        return response

    async def close(self) -> None:
        """Closes all of them."""
        await self._session.close()


class _Patient(BaseConnector):
    """Opens few connections at a time: a server has a short queue for new ones, and none beyond it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._opening = asyncio.Semaphore(MAX_OPENING)

    async def _create_connection(self, *arguments: Any) -> Any:
        async with self._opening:
            return await super()._create_connection(*arguments)


class _Tcp(_Patient, TCPConnector):
    pass


class _Unix(_Patient, UnixConnector):
    pass


def _session(address: Address) -> ClientSession:
    connector: BaseConnector
    if (name := address.unix_name) is not None:
        connector = _Unix(name, limit=0, keepalive_timeout=IDLE_SECONDS)
    else:
        connector = _Tcp(limit=0, keepalive_timeout=IDLE_SECONDS)
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_BYTES,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )
