"""The HTTP listeners of one process. aiohttp is imported late: while the model loads, or once it serves."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from imp_service.config.address import Address
from imp_service.http_api.anthropic.api import Anthropic
from imp_service.http_api.anthropic.form import ANTHROPIC, VERSION
from imp_service.http_api.connection_places import SPARE_PLACES
from imp_service.http_api.guard import Guard
from imp_service.http_api.handler import HttpHandler
from imp_service.http_api.models import Models
from imp_service.http_api.openai.api import OpenAi
from imp_service.http_api.openai.decisions import TypedDecisions
from imp_service.http_api.page import playground
from imp_service.http_api.probes import Probes
from imp_service.http_api.routes import (
    EVERYONE,
    GENERATES,
    PREPARES,
    PROBE,
    PUBLIC,
    READS,
    SCRAPED,
    SHOWS,
    Route,
    Routes,
)
from imp_service.http_api.tls import server_context
from imp_service.http_api.tokens import Tokens
from imp_service.http_api.vectors.api import VectorsApi
from imp_service.serving.lifecycle import Phase
from imp_service.serving.listening import Addresses, bind_socket, is_abstract
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState

if TYPE_CHECKING:
    from imp_service.http_api.listener import Listener

# Seconds. An import at once would take processor time from the reading of the weights.
IMPORT_DELAY = 0.5
BACKLOG = 128
# Connections of the listener of metrics.
MAX_SCRAPERS = 32


def make_routes(state: ServerState, probes: Probes) -> Routes:
    """Every path."""
    models = Models(state)
    page = [Route("GET", "/", EVERYONE, playground)] if state.settings.http.playground else []
    return Routes(
        [
            *page,
            *api_routes(state),
            Route("GET", "/health", PROBE, probes.ready),
            Route("GET", "/health/live", PROBE, probes.alive),
            Route("GET", "/metrics", PUBLIC if state.settings.http.public_metrics else SHOWS, probes.metrics),
            Route("GET", "/load", SHOWS, models.load),
        ]
    )


def api_routes(state: ServerState) -> list[Route]:
    """The paths whose answers are the same from every server with this model."""
    openai, decisions, vectors = OpenAi(state), TypedDecisions(state), VectorsApi(state)
    anthropic, models, tokens = Anthropic(state), Models(state), Tokens(state)
    return [
        Route("POST", "/v1/chat/completions", GENERATES, openai.chat, alias="/chat/completions", takes_images=True),
        Route("POST", "/v1/completions", GENERATES, openai.completions, alias="/completions"),
        Route("POST", "/v1/responses", GENERATES, openai.responses, alias="/responses", takes_images=True),
        Route("POST", "/infill", GENERATES, openai.infill),
        Route("POST", "/v1/decisions", GENERATES, decisions.create, alias="/decisions", takes_images=True),
        Route("POST", "/v1/embeddings", GENERATES, vectors.embeddings, alias="/embeddings"),
        Route("POST", "/embed", GENERATES, vectors.tei_embed),
        Route("POST", "/v1/rerank", GENERATES, vectors.rerank, alias="/rerank"),
        Route("POST", "/v2/rerank", GENERATES, vectors.rerank_v2),
        Route("POST", "/v1/score", GENERATES, vectors.score, alias="/score"),
        Route(
            "POST", "/v1/messages", GENERATES, anthropic.messages, alias="/messages", takes_images=True, form=ANTHROPIC
        ),
        Route(
            "POST",
            "/v1/messages/count_tokens",
            PREPARES,
            anthropic.count_tokens,
            alias="/messages/count_tokens",
            takes_images=True,
            form=ANTHROPIC,
        ),
        Route("GET", "/v1/models", PREPARES, models.list, alias="/models", other_form=(VERSION, ANTHROPIC)),
        Route("GET", "/v1/models/{id}", PREPARES, models.get, alias="/models/{id}", other_form=(VERSION, ANTHROPIC)),
        Route("POST", "/tokenize", READS, tokens.tokenize, takes_images=True),
        Route("POST", "/detokenize", READS, tokens.detokenize),
        Route("GET", "/version", SHOWS, models.version),
    ]


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound socket that aiohttp does not use yet."""

    listening: socket.socket
    address: Address
    is_for_metrics: bool = False


class HttpServer:
    """Listens from bind() to stop(). On the event loop's thread."""

    def __init__(
        self, state: ServerState, access: Access, *, has_front: bool = False, has_public_front: bool = False
    ) -> None:
        """Nothing is bound yet."""
        self._has_front, self._has_public_front = has_front, has_public_front
        self._state = state
        self._access = access
        self._tls = None if access.identity is None else server_context(access.identity)
        probes = Probes(state)
        self._routes = make_routes(state, probes)
        self._scraped = Routes([Route("GET", "/metrics", SCRAPED, probes.metrics)])
        # The bound addresses, with the ports that were chosen.
        self.addresses: list[str] = []
        self.metrics_address: str | None = None
        self._bound: list[Bound] = []
        self._listeners: list[Listener] = []
        self._starting: asyncio.Task[None] | None = None

    def bind(self, addresses: Addresses) -> None:
        """Binds the addresses of HTTP and of metrics. Raises ListenError.

        Requests wait until start() has imported aiohttp.
        """
        for address in addresses.http:
            self.addresses.append(self._bind(address))
        if addresses.metrics is not None:
            self.metrics_address = self._bind(addresses.metrics, is_for_metrics=True)

    def _bind(self, address: Address, *, is_for_metrics: bool = False) -> str:
        listening, bound = bind_socket(address)
        listening.listen(BACKLOG)
        self._bound.append(Bound(listening, Address(bound), is_for_metrics))
        return bound

    def start(self) -> None:
        """Starts a task that accepts connections once the model is loaded, at the latest after IMPORT_DELAY."""
        if self._bound:
            self._starting = asyncio.get_running_loop().create_task(self._start(), name="http")

    async def wait_started(self) -> None:
        """Returns when connections are accepted."""
        if self._starting is not None:
            await asyncio.wait((self._starting,))

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new requests. Running requests have `grace_seconds` to end."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        listeners, self._listeners = self._listeners, []
        await asyncio.gather(*(listener.stop(grace_seconds) for listener in listeners))
        while self._bound:
            bound = self._bound.pop()
            bound.listening.close()
            if bound.address.socket_path is not None:
                bound.address.socket_path.unlink(missing_ok=True)

    async def _start(self) -> None:
        await self._until_serving(IMPORT_DELAY)
        # On a worker: running calls would wait for it.
        await self._state.workers.write(lambda: import_module("imp_service.http_api.listener"))
        self._listeners = [self._listener(bound) for bound in self._bound]
        for listener in self._listeners:
            await listener.start()

    def _listener(self, bound: Bound) -> Listener:
        from imp_service.http_api.listener import Listener, Server

        settings = self._state.settings
        limit = settings.limits.max_metadata_bytes
        is_loopback = bound.address.is_local and not self._has_public_front
        guard = Guard(settings.http.hosts, settings.http.origins, is_loopback, limit)
        routes, n_connections, tls, n_spare = self._routes, settings.connection.max_connections, self._tls, SPARE_PLACES
        if bound.is_for_metrics:
            routes, n_connections, tls, n_spare = self._scraped, MAX_SCRAPERS, None, 0
        handler = HttpHandler(self._state, self._access.authentication, routes, guard)
        server = Server(handler.answer, settings.http, n_connections, limit, n_spare)
        server.places.is_for_own_user = is_abstract(bound.listening)
        server.is_for_front = self._has_front and not bound.is_for_metrics
        return Listener(bound.listening, server, None if bound.address.is_unix else tls)

    async def _until_serving(self, seconds: float) -> None:
        """Returns when the model is loaded, at the latest after `seconds`."""
        lifecycle = self._state.lifecycle
        if lifecycle.phase is not Phase.LOADING:
            return
        serving = asyncio.Event()
        forget = lifecycle.watch(lambda _: serving.set())
        try:
            async with asyncio.timeout(seconds):
                await serving.wait()
        except TimeoutError:
            return
        finally:
            forget()
