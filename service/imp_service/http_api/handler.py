"""Answers HTTP requests: checks the head, finds the route, and runs the call on the common call path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

from imp_service.http_api.api_form import ApiForm
from imp_service.http_api.exchange import Exchange
from imp_service.http_api.guard import Guard, HttpRefusal, check_body_head, no_place
from imp_service.http_api.http_call import Headers, HttpCall, HttpTransport
from imp_service.http_api.requests.reading import UnknownFields
from imp_service.http_api.routes import PROBE, Route, Routes
from imp_service.serving.call_path import Arrival, CallPath, new_request_id
from imp_service.serving.security.authentication import Authentication
from imp_service.serving.server_state import ServerState
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


class HttpHandler:
    """The requests of one listener."""

    def __init__(self, state: ServerState, authentication: Authentication, routes: Routes, guard: Guard) -> None:
        self._state = state
        self._routes = routes
        self._guard = guard
        self._path = CallPath(state, authentication)
        for route in routes.all:
            state.telemetry.add_method(
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
            if exchange.is_spare and route.policy is not PROBE:
                raise no_place(self._state.settings.connection.max_connections)
            if route.has_body:
                check_body_head(exchange.headers, self._state.message_limit(has_images=route.takes_images))
            await self._run(exchange, route, part, cors)
        except HttpRefusal as refused:
            form = self._routes.form_of(exchange.path, exchange.headers)
            headers, request_id = _with_id(refused.headers, exchange, form)
            body = form.refusal(refused.status, refused.code, refused.message, request_id)
            await exchange.reply(refused.status, [*cors, *headers], body, closes=refused.closes)
        except Exception as error:
            # A call reports its own failures, so this is a bug outside of every call.
            self._state.telemetry.log.raised("bug", error, method=exchange.method)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            form = self._routes.form_of(exchange.path, exchange.headers)
            headers, request_id = _with_id(cors, exchange, form)
            body = form.refusal(status, "bug", "internal error", request_id)
            await exchange.reply(status, headers, body, closes=True)

    async def _run(self, exchange: Exchange, route: Route, part: str, cors: Headers) -> None:
        async def answer(call: HttpCall) -> None:
            # With the id that a proxy sent, the proxy's log and imp's have the same id.
            if given := _given_id(exchange):
                call.take_id(given)
            call.has_read_body = not route.has_body
            try:
                await (route.answer(call, part) if part else route.answer(call))  # type: ignore[call-arg]
                reply.grow(len(call.body or b""))
            except UnknownFields:
                call.error_code = "unknown_parameter"
                raise
            except HttpRefusal as refused:
                call.own_code = BODY_CODES[refused.status]
                refused.headers = [*call.own_headers, *refused.headers]
                raise

        method = Method("", route.name, "unary").path
        arrival = Arrival(method, route.policy, route.name, exchange.peer, _metadata(exchange))
        with self._state.sending.message() as reply:
            await self._path.run(arrival, HttpTransport(exchange, cors, route.form_for(exchange.headers)), answer)


def _given_id(exchange: Exchange) -> str:
    """The id that the client or a proxy sent, or an empty text."""
    given = exchange.headers.get(REQUEST_ID, "")
    return given if _ID.fullmatch(given) else ""


def _with_id(headers: Sequence[tuple[str, str]], exchange: Exchange, form: ApiForm) -> tuple[Headers, str]:
    """The headers of a refusal, and the request's id.

    A refusal outside of every call gets an id too, so that a client can report it.
    """
    if given := dict(headers).get(REQUEST_ID):
        return [*headers], given
    request_id = _given_id(exchange) or new_request_id()
    return [*((name, request_id) for name in form.id_headers), *headers], request_id


def _metadata(exchange: Exchange) -> tuple[tuple[str, str], ...]:
    """The headers. A key in `x-api-key` is a bearer token."""
    key = exchange.headers.get(API_KEY)
    if key is None or AUTHORIZATION in exchange.headers:
        return exchange.pairs
    return (*exchange.pairs, (AUTHORIZATION, f"Bearer {key}"))
