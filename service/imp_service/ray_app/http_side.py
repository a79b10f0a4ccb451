"""OpenAI's API of one replica: the paths that every replica answers alike."""

from __future__ import annotations

import asyncio

from imp_service.door.door import Door
from imp_service.door.guard import Guard
from imp_service.door.routes import Routes
from imp_service.door.server import api_routes
from imp_service.ray_app.asgi_exchange import AsgiExchange, Receive, Scope, Send
from imp_service.serving.host import Host
from imp_service.serving.security.authentication import Authentication


class HttpSide:
    """Answers requests over ASGI."""

    def __init__(self, host: Host, authentication: Authentication) -> None:
        settings = host.settings
        # Whoever reaches the proxy reaches the replica: only http.hosts says which names are ours.
        guard = Guard(settings.http.hosts, settings.http.origins, False, settings.limits.max_metadata_bytes)
        self._door = Door(host, authentication, Routes(api_routes(host)), guard)
        self._body_timeout = settings.http.head_timeout.total_seconds()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends exactly one response. Cancelling it, as for a client that leaves, cancels the call."""
        exchange = AsgiExchange(scope, receive, send, self._body_timeout)

        async def run() -> None:
            await self._door.answer(exchange)
            # A stream ends here; a whole response has ended before.
            await exchange.end()

        # A task of its own: a call may be cancelled and go on, as that of a request that takes too long.
        call = asyncio.ensure_future(run())
        try:
            await asyncio.shield(call)
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
