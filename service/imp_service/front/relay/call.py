"""One call on its way through the front, over all upstreams that have a part in its answer."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from http import HTTPStatus

from aiohttp import ClientResponse

from imp_service.front.relay.connections import FAILURES
from imp_service.front.relay.events import WAITING, BadEvents, MarkedReader, Told
from imp_service.front.relay.request import Request, end_to_end, error_event, gateway_error, refusal_in
from imp_service.front.relay.state import METRICS, FrontState
from imp_service.front.relay.upstream import Flight, Upstream
from imp_service.http_api.exchange import Exchange
from imp_service.http_api.guard import HttpRefusal
from imp_service.serving.refusal import Refusal

EVENTS = "text/event-stream"
# A call ends if so many upstreams in a row ended before it had a new token.
MAX_ATTEMPTS = 3
# Seconds that a call which was interrupted waits for an upstream.
PATIENCE = 600.0
# The shortest and longest wait before a resumed stream asks a busy upstream again, and that without its advice.
LEAST_RETRY_SECONDS, MAX_RETRY_SECONDS, RETRY_SECONDS = 0.02, 3.0, 0.5
ADVICE = re.compile(r"[0-9]{1,9}")
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# With these a gateway says that its server failed, and with those that it does not take the field `resume`.
GATEWAYS_LOSSES = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
GATEWAYS_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
# Of an answer without a stream: kept so that it can be asked for again.
MAX_WHOLE_BYTES = 1024**2
MAX_SHOWN = 256


class Broken(Exception):
    """An upstream ended in the middle, or says that it does."""

    def __init__(self, refused: HttpRefusal, *, is_its_fault: bool = True, cause: str = "ended") -> None:
        """`cause` is one of RESUME_CAUSES."""
        super().__init__(refused.message)
        self.refused = refused
        self.cause = cause
        # It does not take other requests now either, and this one was tried.
        self.is_its_fault = is_its_fault


class RelayedCall:
    """From the whole request to the end of the answer."""

    def __init__(self, front: FrontState, exchange: Exchange, request: Request) -> None:
        self._front = front
        self._exchange = exchange
        self.request = request
        self.ticket = front.admission.ticket()
        self.upstream: Upstream | None = None
        # For its turn, and for an upstream that is ready.
        self.is_waiting = False
        # What follows the answer of the upstream.
        self._added = b""
        self._failed: set[Upstream] = set()
        self._told = Told(front.memory)
        self._is_unresumable = False
        self._reader: MarkedReader | None = None
        # Of the answer without a stream.
        self._held = front.memory.message(0)
        self._sent = b""
        self._wrote_at = 0.0
        self._n_attempts = 0
        # Why the first of the upstreams without a new token broke off, and when.
        self._first: HttpRefusal | None = None
        self._cause = ""
        self._interrupted_at: float | None = None
        self._waiting: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Sends the answer. Raises HttpRefusal if it has not begun. What has begun and has no rest breaks off."""
        if self._front.admission.is_refused(self.request.digest):
            raise poison()
        try:
            while not await self._attempt():
                pass
        except HttpRefusal as refused:
            if not self._exchange.has_begun:
                raise
            self._front.n_lost += refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR  # any other is the answer
            if self._reader is None or self._reader.is_plain or self._reader.is_over:
                self._exchange.break_off()
                return
            await self._exchange.end(error_event(self.request.path, refused, self._sent))

    def wake(self) -> None:
        """What the call waits for has changed."""
        if self._waiting is not None and not self._waiting.expired():
            with suppress(RuntimeError):  # the wait has just ended
                self._waiting.reschedule(0.0)

    def close(self) -> None:
        """The call is over."""
        self._front.admission.leave(self.ticket)
        self.request.forget()
        self._told.close()
        self._held.close()
        if self._reader is not None:
            self._reader.close()

    async def _attempt(self) -> bool:
        """Asks one upstream. Returns whether the answer is complete. Raises HttpRefusal if the call cannot go on."""
        self.is_waiting = True
        before, upstream = self.upstream, await self._next()
        self.is_waiting = False
        self.upstream = upstream
        if upstream is before and upstream.is_child:
            self._count_attempt()
        try:
            await self._ask(upstream)
            return True
        except Broken as broken:
            self._first, self._cause = self._first or broken.refused, self._cause or broken.cause
            if self._interrupted_at is None:
                self._interrupted_at = asyncio.get_running_loop().time()
            if broken.is_its_fault:
                self._failed.add(upstream)
                upstream.failed()
            if self._told.is_done and self._exchange.has_begun:  # only the end of the response is missing
                await self._exchange.end()
                return True
            if not self._can_go_on():
                raise self._first from broken
            # Of a child, its end says more than its connections.
            if broken.is_its_fault and not upstream.is_child:
                self._count_attempt()
        return False

    def _can_go_on(self) -> bool:
        if not self.request.can_repeat:
            return False
        is_joinable = self._reader is not None and not self._reader.is_plain and not self._reader.is_over
        return not self._exchange.has_begun or (is_joinable and self._told.is_kept)

    def _count_attempt(self) -> None:
        self._n_attempts += 1
        if self._n_attempts >= MAX_ATTEMPTS:
            raise self._first or gateway_error("upstream_lost", "the server ended")

    async def _next(self) -> Upstream:
        """The upstream to ask. Raises HttpRefusal if none gets ready in time."""
        front, loop = self._front, asyncio.get_running_loop()
        interrupted = self._interrupted_at
        give_up = loop.time() + front.options.hold if interrupted is None else interrupted + PATIENCE
        while True:
            if self.ticket.is_poison:
                raise poison()
            if front.is_lost:
                status, message = HTTPStatus.SERVICE_UNAVAILABLE, "the engine process ended too often"
                raise HttpRefusal(status, "engine_lost", message, [("retry-after", "10")])
            until = min(give_up, loop.time() + front.options.heartbeat)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until) as self._waiting:
                    await front.admission.enter(self.ticket)
                    upstream = await front.upstreams.choose(self._failed)
                if front.admission.may_go(self.ticket) and not self.ticket.is_poison:
                    return upstream
            if loop.time() >= give_up:
                status, message = HTTPStatus.SERVICE_UNAVAILABLE, "no server is ready"
                raise self._first or HttpRefusal(status, "not_ready", message, [("retry-after", "1")])
            if self._exchange.has_begun and loop.time() >= until:
                await self._exchange.write(WAITING)

    async def _ask(self, upstream: Upstream) -> None:
        request = self.request
        try:
            async with upstream.flight() as flight:
                content = request.content(self._told.resume(), flight)
                try:
                    headers = request.headers(upstream, self._front.options.hosts)
                    response = await upstream.connections.send(request.method, request.target, headers, content)
                except FAILURES as error:
                    raise request.refusal or _broken_by(error) from error
                async with response:
                    await self._answer(response, flight)
        except TimeoutError as error:
            raise (_too_slow() if flight.is_read_slowly else _broken("no answer", "silent")) from error

    async def _answer(self, response: ClientResponse, flight: Flight) -> None:
        is_stream = response.content_type == EVENTS and response.status == HTTPStatus.OK
        is_gateways = not _is_of_imp(response)
        if is_stream and self.request.is_amended:
            await self._give_events(response, flight)
        elif is_gateways and response.status in GATEWAYS_LOSSES and self.request.can_repeat:
            content = await _shown(response, flight)
            await asyncio.sleep(RETRY_SECONDS)  # until the gateway knows that its server has gone
            raise Broken(gateway_error("upstream_lost", content))
        elif is_gateways and response.status in GATEWAYS_REFUSALS and self._may_leave_marks():
            self.request.ask_no_marks()
            raise Broken(gateway_error("upstream_lost", await _shown(response, flight)), is_its_fault=False)
        elif self._exchange.has_begun:
            await self._refused(response, flight)
        elif response.status == HTTPStatus.SERVICE_UNAVAILABLE and self._can_go_elsewhere():
            # Such an answer is given only if there is nobody else to ask.
            raise Broken(gateway_error("upstream_lost", "the server takes no calls"))
        else:
            if self._is_page_of_child(response):
                self._added = self._front.metrics()
            if is_stream and (why := self.request.why_unresumable):
                self._tell_unresumable(why)
            await self._give(response, flight, is_stream=is_stream)
        self._front.admission.prove(self.ticket)

    async def _give_events(self, response: ClientResponse, flight: Flight) -> None:
        """Passes on the events of a stream that may go on elsewhere."""
        told, exchange, front = self._told, self._exchange, self._front
        if self._reader is not None:
            self._reader.close()
        reader = self._reader = MarkedReader(told, front.memory)
        goes_on, n_tokens = exchange.has_begun, told.n_tokens
        try:
            while piece := await _read(response, flight):
                given = reader.feed(piece)
                if given:
                    await self._write(response, flight, given)
                if told.n_tokens != n_tokens or told.is_done:
                    n_tokens = told.n_tokens
                    self._grow(flight, goes_on=goes_on)
                if not reader.has_origin:
                    self._tell_unresumable("its server writes no marks", is_known=True)
                if reader.end is not None:
                    raise _leaving(reader.end)
                if reader.cut is not None:
                    raise self._in_place(reader.error) if reader.error else _broken(reader.cut)
        except BadEvents as error:
            raise self._first or gateway_error("upstream_invalid", f"the server sent {error}") from None
        if not reader.is_whole:
            raise _broken("the stream has no end")
        await self._begin(response)
        await exchange.end()

    async def _give(self, response: ClientResponse, flight: Flight, *, is_stream: bool) -> None:
        """Passes on another answer. What has no stream is given whole, if there is memory for it."""
        exchange, parts, n_bytes = self._exchange, [], 0
        while piece := await _read(response, flight):
            if not exchange.has_begun:
                parts.append(piece)
                n_bytes += len(piece)
                if not is_stream and self._has_room(n_bytes):
                    continue
                self.request.forget()
                self._held.close()
                piece, parts = b"".join(parts), []
            await self._write(response, flight, piece)
        await self._begin(response)
        await exchange.end(b"".join(parts) + self._added)

    def _is_page_of_child(self, response: ClientResponse) -> bool:
        """It has the series of the engine process, behind which the front's own follow."""
        is_page = (self.request.method, self.request.path, response.status) == ("GET", METRICS, HTTPStatus.OK)
        return is_page and self.upstream is not None and self.upstream.is_child

    async def _refused(self, response: ClientResponse, flight: Flight) -> None:
        """The upstream does not go on with a stream."""
        content = await _shown(response, flight)
        now = asyncio.get_running_loop().time()
        if response.status in BUSY and now < (self._interrupted_at or now) + PATIENCE:
            advised = response.headers.get("retry-after-ms", "")
            seconds = int(advised) / 1000 if ADVICE.fullmatch(advised) else RETRY_SECONDS
            if now >= self._wrote_at + self._front.options.heartbeat:
                self._wrote_at = now
                await self._exchange.write(WAITING)
            await asyncio.sleep(min(max(seconds, LEAST_RETRY_SECONDS), MAX_RETRY_SECONDS))
            raise Broken(gateway_error("upstream_busy", content), is_its_fault=False)
        first = self._first or gateway_error("upstream_lost", "the server ended")
        message = f"{first.message}; the rest of the stream was refused: {content}"
        raise HttpRefusal(first.status, first.code, message)

    def _may_leave_marks(self) -> bool:
        return self.request.is_amended and self.request.can_repeat and not self._exchange.has_begun

    def _can_go_elsewhere(self) -> bool:
        """Whether another upstream may answer. This one takes no calls."""
        assert self.upstream is not None  # narrows: it has just answered
        self.upstream.failed()
        return self.request.can_repeat and self._front.upstreams.has_ready()

    async def _write(self, response: ClientResponse, flight: Flight, piece: bytes) -> None:
        await self._begin(response)
        self._sent = piece
        self._wrote_at = flight.last_byte  # just now
        await self._exchange.write(piece)

    async def _begin(self, response: ClientResponse) -> None:
        if not self._exchange.has_begun:
            pairs = tuple((name.lower(), value) for name, value in response.headers.items())
            if self._reader is not None or self._added:  # the length is that with the marks, and of this part only
                pairs = tuple(pair for pair in pairs if pair[0] != "content-length")
            # A body that is still on its way leaves no place for another request.
            closes = self.request.is_spent and not self.request.is_kept
            await self._exchange.pass_on(response.status, end_to_end(pairs), closes=closes)

    def _grow(self, flight: Flight, *, goes_on: bool) -> None:
        """The stream has a new token, or its end. `goes_on`: the client had the begin from another upstream."""
        front = self._front
        if front.admission.unproven:
            front.admission.prove(self.ticket)
        if goes_on and self._first is not None:
            front.resumed[self._cause] += 1
            front.log.notice("resumed", tokens=self._told.n_tokens, upstream=flight.upstream.address)
            self._failed.clear()
        if not self._told.is_kept:
            self._tell_unresumable("front.memory has no room for its token ids")
        self._first, self._cause, self._interrupted_at = None, "", None
        self._n_attempts = 0

    def _in_place(self, event: bytes) -> HttpRefusal | Broken:
        """The upstream has answered with an error as an event. That the request is wrong needs no other upstream."""
        refused = refusal_in(event)
        is_final = refused.status < HTTPStatus.INTERNAL_SERVER_ERROR and not self._told.head
        return refused if is_final else Broken(refused)

    def _tell_unresumable(self, why: str, *, is_known: bool = False) -> None:
        if not self._is_unresumable:
            self._is_unresumable = True
            self._front.tell_unresumable(why, is_known=is_known)

    def _has_room(self, n_bytes: int) -> bool:
        try:
            self._held.grow(n_bytes)
        except Refusal:
            return False
        return n_bytes <= MAX_WHOLE_BYTES


async def _read(response: ClientResponse, flight: Flight) -> bytes:
    """The next bytes of a body; empty at its end. Raises Broken."""
    try:
        piece = await response.content.readany()
    except FAILURES as error:
        raise _broken_by(error) from error
    flight.heard()
    return piece


async def _shown(response: ClientResponse, flight: Flight) -> str:
    """The status, and the begin of the body. Raises Broken."""
    return f"{response.status} {(await _read(response, flight))[:MAX_SHOWN].decode(errors='replace')}"


def _is_of_imp(response: ClientResponse) -> bool:
    """Whether a server of imp wrote it. Gateways pass on its headers, and some put another `server` in."""
    return response.headers.get("server") == "imp" or "imp-instance-id" in response.headers


def poison() -> HttpRefusal:
    """The error of a call that ends every engine process."""
    status, message = HTTPStatus.INTERNAL_SERVER_ERROR, "the engine process ended each time it had this request"
    return HttpRefusal(status, "poison_request", message, [("x-should-retry", "false")])


def _too_slow() -> HttpRefusal:
    return HttpRefusal(HTTPStatus.GATEWAY_TIMEOUT, "upstream_timeout", "the server reads the body too slowly")


def _broken(why: str, cause: str = "ended") -> Broken:
    return Broken(gateway_error("upstream_lost", f"the server ended in the middle: {why}"), cause=cause)


def _broken_by(error: BaseException) -> Broken:
    """Its text is not for clients: it may have addresses."""
    return _broken(type(error).__name__)


def _leaving(reason: str) -> Broken:
    """The upstream says itself that the stream can go on elsewhere."""
    message = f"the server ended the stream: {reason}"
    refused = HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, reason.lower(), message, [("retry-after", "1")])
    return Broken(refused, cause="left")
