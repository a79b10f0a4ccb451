"""The places of servers, and those behind their names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from imp_service.config.address import Address

TLS = "https://"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens."""

    address: str
    # The name that its certificate must have; None: it speaks no TLS.
    tls_name: str | None = None

    @classmethod
    def of(cls, text: str) -> Place:
        """That of a setting."""
        address = text.removeprefix(TLS)
        return cls(address, Address(address).host if text.startswith(TLS) else None)

    @property
    def own_host(self) -> str | None:
        """The `host` of requests to a server with TLS: its name is that of its certificate. None: the client's."""
        if self.tls_name is None:
            return None
        return _joined(self.tls_name, Address(self.address).port).removesuffix(":443")

    @property
    def has_name(self) -> bool:
        """Whether the address has a host name, which must be resolved."""
        address = Address(self.address)
        if address.is_unix:
            return False
        try:
            ip_address(address.host)
        except ValueError:
            return True
        return False

    async def resolved(self) -> Sequence[Place]:
        """Those of all addresses of the host name. Raises OSError if it cannot be resolved now."""
        address = Address(self.address)
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except UnicodeError:  # a part of the name is empty or too long
            raise socket.gaierror(socket.EAI_NONAME, "no host name") from None
        return [Place(_joined(*info[4][:2]), self.tls_name) for info in infos]


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
