"""A request and its response as handlers see them, without the library that speaks HTTP."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl

from imp_service.config.server_settings import HttpSettings
from imp_service.http_api.guard import HttpRefusal, too_large
from imp_service.serving.message_memory import SMALL_MESSAGE_BYTES, MessageLimit

Headers = Iterable[tuple[str, str]]
JSON = "application/json"
# In which a front names the peer of a call to its own engine process.
PEER = "imp-peer"
# The headers of every response.
FIXED_HEADERS = {"server": "imp", "x-content-type-options": "nosniff"}


# The most bytes that one read of a body adds.
READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Times:
    """Limits in seconds: for the head and each part of a body, and for a whole body, in either direction."""

    part: float
    body: float

    @classmethod
    def of(cls, settings: HttpSettings) -> Times:
        """Those of the settings."""
        return cls(settings.head_timeout.total_seconds(), settings.body_timeout.total_seconds())


class Exchange(ABC):
    """One request and its response. If the client disconnects, the task that runs it is cancelled."""

    method: str
    path: str
    # The path and the query, as received.
    target: str
    peer: str
    # By name in lower case. Of a name given twice, the first value.
    headers: Mapping[str, str]
    # All of them, with names in lower case.
    pairs: tuple[tuple[str, str], ...]
    is_http_1_1: bool

    @property
    @abstractmethod
    def has_begun(self) -> bool:
        """The status line was sent."""

    times: Times
    # The listener has as many connections as it may: this one is for a probe.
    is_spare = False
    # When a body that has begun must be complete.
    _body_by: float | None = None

    def allow(self, seconds: float) -> None:
        """Somebody else than the client has delayed the body by so much."""
        if self._body_by is not None:
            self._body_by += seconds

    @property
    def query(self) -> list[tuple[str, str]]:
        """The fields of the query."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True)

    async def read_body(self, limit: MessageLimit, will_have: Callable[[int], object]) -> bytearray:
        """The whole body. `will_have` is called with the number of its bytes, so far, before they are read.

        Raises HttpRefusal if the body is too large, malformed or too slow, and QUEUE_FULL if it has no room.
        """
        length = self.headers.get("content-length", "")
        n_expected = int(length) if length else math.inf
        body = bytearray()
        while True:
            if body or SMALL_MESSAGE_BYTES < n_expected < math.inf:
                will_have(int(min(n_expected, limit.n_bytes, len(body) + READ_BYTES)))
            part = await self.read_part()
            if not part:
                return body
            body += part
            if len(body) > limit.n_bytes:
                raise too_large(limit)

    async def read_part(self) -> bytes:
        """The next part of the body; empty at its end. Raises HttpRefusal if it is malformed or too slow."""
        loop = asyncio.get_running_loop()
        if self._body_by is None:
            self._body_by = loop.time() + self.times.body
        if (part := self._part_at_hand()) is not None:
            return part
        try:
            async with asyncio.timeout_at(min(self._body_by, loop.time() + self.times.part)):
                return await self._next_part()
        except TimeoutError:
            raise HttpRefusal(
                HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "the body arrived too slowly", closes=True
            ) from None

    def _part_at_hand(self) -> bytes | None:
        """The next part of the body if it has arrived, empty at its end; None if it has not. Raises as _next_part().

        A transport that cannot tell waits for every part.
        """
        return None

    @abstractmethod
    async def _next_part(self) -> bytes:
        """The next part of the body; empty at its end. Raises HttpRefusal if it is malformed."""

    @abstractmethod
    async def reply(self, status: HTTPStatus, headers: Headers, body: bytes, *, closes: bool = False) -> None:
        """Sends a whole response."""

    @abstractmethod
    async def begin(self, status: HTTPStatus, headers: Headers) -> None:
        """Sends the head of a response whose body follows in pieces."""

    @abstractmethod
    async def pass_on(self, status: int, headers: Headers, *, closes: bool) -> None:
        """Sends the head of a response that another server has written: nothing is added to it."""

    @abstractmethod
    async def write(self, piece: bytes) -> None:
        """Sends a piece of the body. Waits while the client does not read."""

    @abstractmethod
    async def end(self, piece: bytes = b"") -> None:
        """Sends the last piece of the body, and ends it. A client that does not read it in time is cut off."""

    @abstractmethod
    def break_off(self) -> None:
        """Ends the connection in the middle of a response that has no rest. The client can tell this from its end."""
