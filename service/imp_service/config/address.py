"""Parses and compares the addresses of listen.…."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

UNIX = "unix://"
# Of a Unix socket without a file, for which the kernel has chosen a name.
ABSTRACT = "unix-abstract:"
INHERITED = "fd:"
# Wildcard host -> the loopback address of the same family.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclass(frozen=True, slots=True)
class Address:
    """A listening address: host:port, [IPv6]:port, unix:///path, or fd:N for a listening socket that is inherited."""

    text: str

    @property
    def socket_path(self) -> Path | None:
        """The path of a Unix socket; None for TCP."""
        return Path(self.text.removeprefix(UNIX)) if self.text.startswith(UNIX) else None

    @property
    def descriptor(self) -> int | None:
        """The number of an inherited socket; None for an address."""
        return int(self.text.removeprefix(INHERITED)) if self.text.startswith(INHERITED) else None

    @property
    def is_unix(self) -> bool:
        """No TCP. An inherited TCP socket gets its address when it is taken over."""
        return self.unix_name is not None or self.descriptor is not None

    @property
    def unix_name(self) -> str | None:
        """What the kernel calls a Unix socket: its path, or a name that begins with NUL; None for any other."""
        if self.text.startswith(ABSTRACT):
            return "\0" + self.text.removeprefix(ABSTRACT)
        return None if self.socket_path is None else str(self.socket_path)

    @property
    def host(self) -> str:
        """The host of a TCP address, without brackets."""
        return self.text.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of a TCP address; 0: any free port."""
        return int(self.text.rpartition(":")[2])

    def with_port(self, port: int) -> str:
        """The address with this port."""
        return f"{self.text.rpartition(':')[0]}:{port}"

    @property
    def without_ipv6(self) -> "Address":
        """The address for a kernel without IPv6: `[::]` becomes `0.0.0.0`; other addresses stay."""
        is_wildcard = not self.is_unix and self.host == "::"
        return Address(f"0.0.0.0:{self.port}") if is_wildcard else self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect: a Unix socket or loopback."""
        if self.is_unix:
            return True
        try:
            return ipaddress.ip_address(self._ip).is_loopback
        except ValueError:
            return False

    @property
    def local_text(self) -> str:
        """The address for clients on this machine: loopback instead of a wildcard."""
        here = None if self.is_unix else EVERYWHERE.get(self.host)
        return self.text if here is None else f"{here}:{self.port}"

    def collides_with(self, other: "Address") -> bool:
        """Whether no process can listen on both. Port 0 never collides."""
        if self.is_unix or other.is_unix:
            return self.text == other.text
        is_one_host = self._ip == other._ip or bool(EVERYWHERE.keys() & {self.host, other.host})
        return is_one_host and self.port == other.port != 0

    @property
    def _ip(self) -> str:
        """The host as an IP address; `localhost` is 127.0.0.1."""
        return "127.0.0.1" if self.host == "localhost" else self.host
