"""The registered methods of gRPC and paths of HTTP: labels of metrics come from them, never from a client."""

from dataclasses import dataclass
from typing import Literal

MethodType = Literal["unary", "client_stream", "server_stream", "bidi_stream"]


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC of one service, or one path of HTTP, which has no service."""

    service: str
    name: str
    type: MethodType
    # It uses the model: it counts as a request.
    is_request: bool = False
    # It is a health check: a kubelet makes one every few seconds.
    is_health: bool = False

    @property
    def is_http(self) -> bool:
        """A path of HTTP."""
        return not self.service

    @property
    def path(self) -> str:
        """The path of the request."""
        return f"/{self.service}/{self.name}" if self.service else self.name


# The label of calls whose method is not registered.
UNKNOWN = Method("unknown", "unknown", "unary")


class Methods:
    """The methods of a server by their path."""

    def __init__(self) -> None:
        self._by_path: dict[str, Method] = {}

    def add(self, method: Method) -> None:
        """Makes a method known."""
        self._by_path[method.path] = method

    def find(self, path: str) -> Method:
        """The method at a path, or UNKNOWN."""
        return self._by_path.get(path, UNKNOWN)
