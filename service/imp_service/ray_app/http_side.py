"""OpenAI's API of one replica: the paths that every replica answers alike."""

from __future__ import annotations

import asyncio

from imp_service.http_api.exchange import Times
from imp_service.http_api.guard import Guard
from imp_service.http_api.handler import HttpHandler
from imp_service.http_api.routes import Routes
from imp_service.http_api.server import api_routes
from imp_service.ray_app.asgi_exchange import AsgiExchange, Receive, Scope, Send
from imp_service.serving.security.authentication import Authentication
from imp_service.serving.server_state import ServerState


class HttpSide:
    """Answers requests over ASGI."""

    def __init__(self, state: ServerState, authentication: Authentication) -> None:
        settings = state.settings
        # Every client of the proxy reaches the replica, so only the names in http.hosts are accepted.
        guard = Guard(settings.http.hosts, settings.http.origins, False, settings.limits.max_metadata_bytes)
        self._handler = HttpHandler(state, authentication, Routes(api_routes(state)), guard)
        self._times = Times.of(settings.http)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends exactly one response. Cancelling it, as when the client disconnects, cancels the call."""
        exchange = AsgiExchange(scope, receive, send, self._times)

        async def run() -> None:
            await self._handler.answer(exchange)
            # Ends a stream. A whole response has already ended.
            await exchange.end()

        # A separate task, since a cancelled call may still have work to do, such as one that exceeded its time.
        call = asyncio.ensure_future(run())
        try:
            await asyncio.shield(call)
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
