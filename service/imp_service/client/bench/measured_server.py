"""The interface between the ladder and a server, for every protocol."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .measure import RequestResult

# Sends a prepared request and measures it.
Ask = Callable[[], Awaitable[RequestResult]]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that a server states about itself. Texts are empty if the server does not state them."""

    address: str
    model: str
    weights: str
    server: str
    device: str
    max_context: int | None = None  # tokens; None: not stated

    @property
    def title(self) -> str:
        """The model, and its weights where the server describes them."""
        return titled(self.model, self.weights)


def titled(model: str, weights: str) -> str:
    """A model's name with its weights, which may be empty."""
    return f"{model} ({weights})" if weights else model


class MeasuredServer(Protocol):
    """A server with open connections."""

    @property
    def facts(self) -> ServerFacts:
        """The facts of the server that is measured."""
        ...

    def prepare(self, stream: int, identity: tuple[int, ...], output_tokens: int) -> Ask:
        """A greedy request. Prompts of different `identity` share no prefix, so no prefix cache has an effect."""
        ...
