"""The interface between the measurement of vectors and a server, for every protocol."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from .measured_server import ServerFacts

# Sends a prepared call. Returns the tokens of its texts, as the server counts them. Raises CallFailure.
AskVectors = Callable[[], Awaitable[int]]


class VectorServer(Protocol):
    """A server with open connections."""

    @property
    def facts(self) -> ServerFacts:
        """The facts of the server that is measured."""
        ...

    @property
    def most_tokens(self) -> int | None:
        """The length of the longest text; None: not stated."""
        ...

    async def fit_texts(self, n_tokens: int) -> None:
        """From now on texts have about so many tokens."""

    def prepare(self, stream: int, identity: tuple[int, ...], n_texts: int) -> AskVectors:
        """A call with so many texts. Those of different `identity` differ."""
        ...
