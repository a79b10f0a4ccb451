"""One call over HTTP as its handler sees it, and its response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from imp_service.http_api.api_form import ApiForm
from imp_service.http_api.exchange import JSON, Exchange
from imp_service.http_api.failures import headers_of, status_of
from imp_service.serving.calls import Call, caller_has_gone
from imp_service.serving.errors.error_table import DRAINING
from imp_service.serving.errors.failure import Failure

EVENTS = "text/event-stream"
MOST_TOKENS = "imp-max-tokens"
Headers = list[tuple[str, str]]


@dataclass(slots=True, eq=False, kw_only=True)
class HttpCall(Call):
    """Answers with one body, or with a stream of events."""

    exchange: Exchange
    # The API that the client speaks.
    form: ApiForm
    # CORS headers: they allow a page of another origin to read the response.
    cors: Headers
    headers: Headers = field(default_factory=list)
    # Names the answer in its body. No other answer has it.
    answer_id: str = ""
    # The whole response, if it is no stream.
    body: bytes | None = None
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = JSON
    # Replaces the code of a failure's reason.
    error_code: str | None = None
    # Writes the body of a failure as the last event of a stream; None: as every stream of the API has it.
    failure_event: Callable[[bytes], bytes] | None = None
    # Writes that event, or what replaces it, for a caller that can resume.
    mark_failure: Callable[[Failure, bytes], bytes] | None = None
    # The connection is closed after a response that is sent before the body was read.
    has_read_body: bool = True

    def __post_init__(self) -> None:
        self.answer_id = self.request_id

    def take_id(self, given: str) -> None:
        """Takes the id that the client or a proxy chose. A repeated request, or every call of a trace, may have it."""
        self.request_id, self.shares_id = given, True
        self.answer_id = f"{given}-{self.answer_id}"

    def time_remaining(self) -> float | None:
        """None: HTTP has no deadline. A client that gives up disconnects."""
        return None

    def answer_with(self, body: bytes, content_type: str = JSON, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Sets the whole response. It is sent when the handler has ended."""
        self.body, self.content_type, self.status = body, content_type, status

    def tell_room(self, n_tokens: int) -> None:
        """Tells in a header that the output has room for fewer tokens than asked: the least of several prompts."""
        told = int(dict(self.headers).get(MOST_TOKENS, n_tokens))
        others = [pair for pair in self.headers if pair[0] != MOST_TOKENS]
        self.headers = [*others, (MOST_TOKENS, str(min(told, n_tokens)))]

    async def write(self, events: bytes) -> None:
        """Sends events of a stream. Waits while the client does not read."""
        if not self.reply_has_begun:
            await self.begin_reply()
        try:
            await self.exchange.write(events)
        except Exception as error:
            raise caller_has_gone() from error

    @property
    def own_headers(self) -> Headers:
        """The headers that identify the call and the server."""
        return [*((name, self.request_id) for name in self.form.id_headers), *self.identity[1:]]

    @property
    def all_headers(self) -> Headers:
        """The headers that every response of the call has."""
        return [*self.own_headers, *self.cors, *self.headers]

    async def _send_identity(self) -> None:
        if self.body is None:
            stream = [("content-type", EVENTS), ("cache-control", "no-cache")]
            await self.exchange.begin(HTTPStatus.OK, [*stream, *self.all_headers])
        else:
            kind = [("content-type", self.content_type)]
            await self.exchange.reply(self.status, [*kind, *self.all_headers], self.body)


class HttpTransport:
    """Ends one call with a response."""

    def __init__(self, exchange: Exchange, cors: Headers, form: ApiForm) -> None:
        self.make = partial(HttpCall, exchange=exchange, cors=cors, form=form)

    async def succeed(self, call: HttpCall) -> None:
        """Sends the whole response. A stream was sent already."""
        await call.begin_reply()

    async def fail(self, call: HttpCall, failure: Failure) -> None:
        """Sends the error: with its status, or as an event of the stream that has begun."""
        body = call.form.failure(failure, call.error_code, call.request_id)
        try:
            if not call.exchange.has_begun:
                headers = [*call.all_headers, *headers_of(failure)]
                closes = failure.reason == DRAINING or not call.has_read_body
                await call.exchange.reply(status_of(failure), headers, body, closes=closes)
            elif call.body is None:
                event = (call.failure_event or call.form.event)(body)
                await call.exchange.end(event if call.mark_failure is None else call.mark_failure(failure, event))
        except Exception as unsent:
            raise caller_has_gone() from unsent
