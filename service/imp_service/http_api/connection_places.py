"""Which connections a listener keeps open: so many, and a few more for probes. The slowest ones give way to others."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Collection
from enum import Enum
from typing import Protocol

# Connections beyond connection.max_connections that only probes may use.
SPARE_PLACES = 16
# The process, user and group at the other end of a Unix socket.
CREDENTIALS = struct.Struct("3i")


class ConnectionUse(Enum):
    """What a connection may be used for."""

    ANY = "any"
    SPARE = "spare"


class OpenConnection(Protocol):
    """A connection that may have to give way."""

    @property
    def body_since(self) -> float | None:
        """When the body of the current request began, while it is incomplete."""

    def give_way(self) -> None:
        """Closes at once, for another connection."""


class ConnectionPlaces:
    """The places of one listener."""

    def __init__(self, most: int, n_spare: int, part_seconds: float) -> None:
        """`part_seconds`: how long a body may be incomplete before its connection gives way."""
        self._most = most
        self._n_spare = n_spare
        self._part_seconds = part_seconds
        # Only processes of this user may connect.
        self.is_for_own_user = False
        # In the order in which they came.
        self._spare: dict[OpenConnection, None] = {}

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the process at the other end may connect."""
        if not self.is_for_own_user:
            return True
        found = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        return CREDENTIALS.unpack(found)[1] in (0, os.geteuid())

    def take(self, connection: OpenConnection, others: Collection[OpenConnection], now: float) -> ConnectionUse | None:
        """The place of a new connection beside the open ones; None: there is none.

        If all are taken, one whose body has been incomplete for too long gives way, and so does the oldest spare one.
        """
        if len(others) - len(self._spare) < self._most:
            return ConnectionUse.ANY
        slow = self._slowest(others, now)
        if slow is not None:
            slow.give_way()
            return ConnectionUse.ANY
        if not self._n_spare:
            return None
        if len(self._spare) >= self._n_spare:
            oldest = next(iter(self._spare))
            del self._spare[oldest]
            oldest.give_way()
        self._spare[connection] = None
        return ConnectionUse.SPARE

    def leave(self, connection: OpenConnection) -> None:
        """A connection has ended."""
        self._spare.pop(connection, None)

    def _slowest(self, others: Collection[OpenConnection], now: float) -> OpenConnection | None:
        """The connection whose body has been incomplete for longest, if that is longer than a part may take."""
        before = now - self._part_seconds
        slow = [each for each in others if each.body_since is not None and each.body_since < before]
        return min(slow, key=lambda each: each.body_since or 0.0, default=None)
