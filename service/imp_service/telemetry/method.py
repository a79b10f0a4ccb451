"""The methods that calls are counted under: what registration knows of each, so that labels have a bound."""

from dataclasses import dataclass
from typing import Literal

MethodType = Literal["unary", "client_stream", "server_stream", "bidi_stream"]


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC of one service."""

    service: str
    name: str
    type: MethodType
    # It asks the model for something: it is counted among the requests.
    is_request: bool = False
    # A health check: a kubelet makes one every few seconds.
    is_health: bool = False

    @property
    def path(self) -> str:
        """As gRPC has it."""
        return f"/{self.service}/{self.name}"


# Where calls are counted whose method nobody registered: a label never comes from a client.
UNKNOWN = Method("unknown", "unknown", "unary")


class Methods:
    """The methods of a server by their path."""

    def __init__(self) -> None:
        self._by_path: dict[str, Method] = {}

    def add(self, method: Method) -> None:
        """Makes a method known."""
        self._by_path[method.path] = method

    def find(self, path: str) -> Method:
        """The method at a path, UNKNOWN where there is none."""
        return self._by_path.get(path, UNKNOWN)
