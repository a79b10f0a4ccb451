"""A request and its response as handlers see them, without the library that speaks HTTP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from http import HTTPStatus

Headers = Iterable[tuple[str, str]]
JSON = "application/json"
# The headers of every response.
FIXED_HEADERS = {"server": "imp", "x-content-type-options": "nosniff"}


class Exchange(ABC):
    """One request and its response. If the client disconnects, the task that runs it is cancelled."""

    method: str
    path: str
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

    @abstractmethod
    async def read_body(self, max_bytes: int) -> bytes:
        """The whole body. Raises HeadRefused if it is too large, or comes too slowly."""

    @abstractmethod
    async def reply(self, status: HTTPStatus, headers: Headers, body: bytes, *, closes: bool = False) -> None:
        """Sends a whole response."""

    @abstractmethod
    async def begin(self, status: HTTPStatus, headers: Headers) -> None:
        """Sends the head of a response whose body follows in pieces."""

    @abstractmethod
    async def write(self, piece: bytes) -> None:
        """Sends a piece of the body. Waits while the client does not read."""

    @abstractmethod
    async def end(self, piece: bytes = b"") -> None:
        """Sends the last piece of the body, and ends it. A client that does not read it in time is cut off."""
