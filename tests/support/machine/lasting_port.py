"""A port for a server that is started again where it was."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

PORTS_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def lasting_port() -> int:
    """A port that no other process gets while nobody listens there: the kernel gives none of these by itself."""
    first_given = int(PORTS_GIVEN.read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(first_given // 2, first_given)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
