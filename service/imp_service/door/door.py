"""Answers HTTP requests: checks the head, finds the route, and runs the call on the common call path."""

from __future__ import annotations

import re
from http import HTTPStatus

from imp_service.door.exchange import Exchange
from imp_service.door.failures import error_body
from imp_service.door.guard import Guard, HeadRefused, check_body_head
from imp_service.door.http_call import Headers, HttpCall, HttpTransport
from imp_service.door.openai.reading import UnknownFields
from imp_service.door.routes import Route, Routes
from imp_service.serving.call_path import Arrival, CallPath
from imp_service.serving.host import Host
from imp_service.serving.security.authentication import Authentication
from imp_service.telemetry import Method

API_KEY, AUTHORIZATION = "x-api-key", "authorization"
REQUEST_ID = "x-request-id"
# HTTP status of a malformed, large or slow body -> the gRPC code in the call's log record and metrics.
BODY_CODES = {
    HTTPStatus.BAD_REQUEST: "INVALID_ARGUMENT",
    HTTPStatus.REQUEST_TIMEOUT: "DEADLINE_EXCEEDED",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RESOURCE_EXHAUSTED",
}
_ID = re.compile(r"[\x21-\x7E]{1,128}")


class Door:
    """The requests of one listener."""

    def __init__(self, host: Host, authentication: Authentication, routes: Routes, guard: Guard) -> None:
        self._host = host
        self._routes = routes
        self._guard = guard
        self._path = CallPath(host, authentication)
        for route in routes.all:
            host.telemetry.add_method(
                Method("", route.name, "unary", is_request=route.policy.is_request, is_health=route.policy.is_health)
            )

    async def answer(self, exchange: Exchange) -> None:
        """Sends exactly one response."""
        cors: Headers = []
        try:
            cors = self._guard.check(exchange.pairs, has_host=exchange.is_http_1_1)
            if exchange.method == "OPTIONS" and "access-control-request-method" in exchange.headers:
                await exchange.reply(HTTPStatus.NO_CONTENT, [*cors, *self._guard.preflight(exchange.headers)], b"")
                return
            route, part = self._routes.find(exchange.method, exchange.path)
            if route.has_body:
                check_body_head(exchange.headers, self._host.settings.limits.max_message_bytes)
            await self._run(exchange, route, part, cors)
        except HeadRefused as refused:
            body = error_body(refused.status, refused.code, refused.message)
            await exchange.reply(refused.status, [*cors, *refused.headers], body, closes=refused.closes)
        except Exception as error:
            # A call reports its own failures, so this is a bug outside of every call.
            self._host.telemetry.log.raised("bug", error, method=exchange.method)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            await exchange.reply(status, cors, error_body(status, "bug", "internal error"), closes=True)

    async def _run(self, exchange: Exchange, route: Route, part: str, cors: Headers) -> None:
        async def answer(call: HttpCall) -> None:
            # With the id that a proxy sent, the proxy's log and imp's have the same id.
            given = exchange.headers.get(REQUEST_ID, "")
            if _ID.fullmatch(given):
                call.take_id(given)
            call.has_read_body = not route.has_body
            try:
                await (route.answer(call, part) if part else route.answer(call))  # type: ignore[call-arg]
            except UnknownFields:
                call.error_code = "unknown_parameter"
                raise
            except HeadRefused as refused:
                call.own_code = BODY_CODES[refused.status]
                refused.headers = [*call.own_headers, *refused.headers]
                raise

        method = Method("", route.name, "unary").path
        arrival = Arrival(method, route.policy, route.name, exchange.peer, _metadata(exchange))
        await self._path.run(arrival, HttpTransport(exchange, cors), answer)


def _metadata(exchange: Exchange) -> tuple[tuple[str, str], ...]:
    """The headers. A key in `x-api-key` is a bearer token."""
    key = exchange.headers.get(API_KEY)
    if key is None or AUTHORIZATION in exchange.headers:
        return exchange.pairs
    return (*exchange.pairs, (AUTHORIZATION, f"Bearer {key}"))
