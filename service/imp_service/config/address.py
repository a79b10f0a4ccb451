"""An address to listen on, taken apart: the one place that knows how listen.… writes them."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

UNIX = "unix://"
# Each stands for all of a machine's own -> the one by which that machine reaches itself.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclass(frozen=True, slots=True)
class Address:
    """As listen.… has it: host:port, [IPv6]:port or unix:///path."""

    text: str

    @property
    def socket_path(self) -> Path | None:
        """Of a Unix socket, None of a port."""
        return Path(self.text.removeprefix(UNIX)) if self.text.startswith(UNIX) else None

    @property
    def host(self) -> str:
        """Of a port, without brackets."""
        return self.text.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """0: any free one."""
        return int(self.text.rpartition(":")[2])

    def with_port(self, port: int) -> str:
        """The address that clients use."""
        return f"{self.text.rpartition(':')[0]}:{port}"

    @property
    def over_ipv4(self) -> "Address":
        """The same address where there is no IPv6: `[::]` is `0.0.0.0`, every other one stays."""
        is_wildcard = self.socket_path is None and self.host == "::"
        return Address(f"0.0.0.0:{self.port}") if is_wildcard else self

    @property
    def is_of_this_machine(self) -> bool:
        """Nobody else can connect."""
        if self.socket_path is not None:
            return True
        try:
            return ipaddress.ip_address(self._ip).is_loopback
        except ValueError:
            return False

    @property
    def reached_here(self) -> str:
        """The address that clients on this machine use."""
        here = None if self.socket_path is not None else EVERYWHERE.get(self.host)
        return self.text if here is None else f"{here}:{self.port}"

    def collides_with(self, other: "Address") -> bool:
        """Whether both cannot be listened on at once. Port 0 is another one each time."""
        if self.socket_path is not None or other.socket_path is not None:
            return self.text == other.text
        is_one_host = self._ip == other._ip or bool(EVERYWHERE.keys() & {self.host, other.host})
        return is_one_host and self.port == other.port != 0

    @property
    def _ip(self) -> str:
        """The host; the one name that is the same everywhere is an address too."""
        return "127.0.0.1" if self.host == "localhost" else self.host
