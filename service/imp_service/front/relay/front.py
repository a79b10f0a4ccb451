"""The front: answers probes, relays all other calls, and keeps what they share."""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from http import HTTPStatus

from imp_service.config import Settings
from imp_service.front.relay.call import RelayedCall
from imp_service.front.relay.request import form_of, read_request
from imp_service.front.relay.state import METRICS, FrontOptions, FrontState
from imp_service.front.relay.upstream import ALIVE, READY, Upstream
from imp_service.front.relay.upstreams import Upstreams
from imp_service.http_api.exchange import Exchange
from imp_service.http_api.guard import HttpRefusal, no_place
from imp_service.http_api.json_text import dumps
from imp_service.http_api.listener import Listener, Server
from imp_service.telemetry.front_metrics import FrontNumbers
from imp_service.telemetry.log import Log
from imp_service.telemetry.metrics_page import CONTENT_TYPE, MetricsPage

# With so many bytes that a client has not read, its stream waits.
MAX_UNSENT_BYTES = 16 * 1024
# Seconds for which the front stays ready without a ready upstream.
READY_SECONDS = 2.0
# More servers than any sensible path has.
MAX_VIA = 8
REQUEST_ID = "x-request-id"
MAX_ID_CHARS = 128


class Front(FrontState):
    """All calls. On the event loop's thread."""

    def __init__(self, upstreams: Upstreams, options: FrontOptions, log: Log) -> None:
        super().__init__(upstreams, options, log)
        self._is_leaving = False
        self._calls: set[RelayedCall] = set()
        self._page = MetricsPage(self.metrics, time.monotonic)
        upstreams.on_death = self._died

    @property
    def n_open(self) -> int:
        """Calls under way."""
        return len(self._calls)

    def listener(self, listening: socket.socket, settings: Settings, tls: ssl.SSLContext | None) -> Listener:
        """Answers on a bound socket, once it is started."""
        max_head, max_connections = settings.limits.max_metadata_bytes, settings.connection.max_connections
        server = Server(self.answer, settings.http, max_connections, max_head, max_unsent_bytes=MAX_UNSENT_BYTES)
        return Listener(listening, server, tls)

    def numbers(self) -> FrontNumbers:
        n_ready = sum(upstream.is_ready for upstream in self.upstreams.all)
        n_waiting = sum(call.is_waiting for call in self._calls)
        return FrontNumbers(
            self.resumed,
            self.deaths,
            self.n_lost,
            self.n_unresumable,
            {"ready": n_ready, "away": len(self.upstreams.all) - n_ready},
            {"waiting": n_waiting, "running": len(self._calls) - n_waiting},
        )

    def leave(self) -> None:
        """The front is not ready from now on. It still relays calls."""
        self._is_leaving = True

    def give_up(self) -> None:
        """There will be no engine process any more: every call ends."""
        self.is_lost = True
        for call in self._calls:
            call.wake()

    async def answer(self, exchange: Exchange) -> None:
        """Sends exactly one response."""
        try:
            self._check(exchange)
            if exchange.path in (READY, ALIVE) and exchange.method in ("GET", "HEAD"):
                await self._answer_probe(exchange)
            elif exchange.path == METRICS and exchange.method == "GET" and self.options.has_own_metrics:
                await self.answer_scrape(exchange)
            elif exchange.is_spare:
                raise no_place(self.options.max_connections)
            else:
                await self._relay(exchange)
        except HttpRefusal as refused:
            await self.refuse(exchange, refused)

    async def refuse(self, exchange: Exchange, refused: HttpRefusal) -> None:
        """Sends an error of the front."""
        form = form_of(exchange.path)
        given = exchange.headers.get(REQUEST_ID, "")
        request_id = given if 0 < len(given) <= MAX_ID_CHARS else secrets.token_hex(8)
        headers = [*((name, request_id) for name in form.id_headers), *refused.headers]
        body = form.refusal(refused.status, refused.code, refused.message, request_id)
        await exchange.reply(refused.status, headers, body, closes=refused.closes)

    async def answer_scrape(self, exchange: Exchange) -> None:
        """Sends the metrics of the front."""
        await exchange.reply(HTTPStatus.OK, [("content-type", CONTENT_TYPE)], self._page.get())

    async def _relay(self, exchange: Exchange) -> None:
        request = await read_request(exchange, self.memory, self.upstreams)
        call = RelayedCall(self, exchange, request)
        self._calls.add(call)
        try:
            await call.run()
        finally:
            self._calls.discard(call)
            call.close()

    async def _answer_probe(self, exchange: Exchange) -> None:
        if exchange.path == ALIVE:
            is_good, word = True, "alive"
        else:
            is_good = self.upstreams.has_ready(READY_SECONDS) and not self._is_leaving
            word = "serving" if is_good else "leaving" if self._is_leaving else "waiting"
        status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        await exchange.reply(status, (), dumps({"status": word}).encode())

    def _check(self, exchange: Exchange) -> None:
        passed = [part.strip() for name, value in exchange.pairs if name == "via" for part in value.split(",")]
        if self.upstreams.via in passed or len(passed) > MAX_VIA:
            raise HttpRefusal(HTTPStatus.LOOP_DETECTED, "loop", "the request has passed this front before", closes=True)
        if not exchange.target.startswith("/"):
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "bad_request", "the target is no path", closes=True)

    def _died(self, child: Upstream, is_own_fault: bool) -> None:
        """An engine process has ended. Its calls wait for the next one."""
        inside = [call for call in self._calls if call.upstream is child]
        poison = self.admission.ended((call.ticket for call in inside), is_own_fault=is_own_fault)
        for call in inside:
            if call.ticket is poison:
                self.log.error("poison", message="a request ended the engine process each time, and is refused")
                self.admission.refuse(call.request.digest())
                call.wake()
