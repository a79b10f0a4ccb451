"""A request as it is sent to upstreams: with a body that is kept to be sent again, or that passes as it comes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from imp_service.front.relay.upstream import Flight, Upstream
from imp_service.front.relay.upstreams import Upstreams
from imp_service.http_api.anthropic.form import ANTHROPIC
from imp_service.http_api.api_form import ApiForm
from imp_service.http_api.exchange import PEER, Exchange
from imp_service.http_api.guard import HttpRefusal
from imp_service.http_api.host_names import is_local_host, name_of
from imp_service.http_api.openai.form import OPENAI
from imp_service.serving.message_memory import HeldMessage, MessageMemory
from imp_service.serving.refusal import Refusal

# Also below a prefix, as Ray Serve gives an application.
GENERATING = ("/chat/completions", "/completions", "/responses", "/messages")
# Sent again if their upstream ends before it has answered.
REPEATED = ("GET", "HEAD", "POST")
# Of one connection only.
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade", "expect")
)  # fmt: skip
# By these a server knows a page of another site, so no header `connection` takes them away.
GUARDED = frozenset(("host", "origin"))
ERROR_STATUSES = frozenset(status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)
_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class Request:
    """What a client asks for."""

    def __init__(self, exchange: Exchange, upstreams: Upstreams, held: HeldMessage) -> None:
        self.method, self.target, self.path = exchange.method, exchange.target, exchange.path
        self._exchange = exchange
        self._upstreams = upstreams
        self._held = held
        # The whole body, or what has been read of it.
        self.body = bytearray()
        self.is_kept = True
        # The rest of a body that is not kept was asked for, so it is gone.
        self.is_spent = False
        # Why the client's body cannot be read to its end.
        self.refusal: HttpRefusal | None = None
        # Where the field `resume` can be put into the body.
        self._place: int | None = None
        # A gateway has refused that field.
        self.has_left_marks = False

    @property
    def is_for_stream(self) -> bool:
        """It may ask for a stream that can be resumed."""
        return self.method == "POST" and self.path.endswith(GENERATING)

    @property
    def is_amended(self) -> bool:
        """The request asks for marks."""
        return self._place is not None

    @property
    def why_unresumable(self) -> str:
        """Why a stream that answers it cannot go on elsewhere; empty if it can, or its client goes on by itself."""
        if self.has_left_marks:
            return "a gateway refuses the field resume"
        return "" if self.is_kept or not self.is_for_stream else "front.memory has no room for the body"

    @property
    def can_repeat(self) -> bool:
        """It can be sent once more."""
        return self.method in REPEATED and self.is_kept and not self.is_spent

    def digest(self) -> bytes:
        """Names the body; empty if there is none, or it is not kept."""
        return sha256(self.body).digest() if self.body and self.is_kept else b""

    def headers(self, upstream: Upstream, hosts: Collection[str]) -> list[tuple[str, str]]:
        """Those for the next upstream. A child believes its front, and nobody else, who the client is.

        `hosts` are names of this front, besides those that no other site can have.
        """
        own = [("via", self._upstreams.via), *([(PEER, self._exchange.peer)] if upstream.is_child else [])]
        # Of a body that is not kept, nothing can go on elsewhere.
        if self.is_kept and self._upstreams.can_resume_elsewhere:
            own.append(("imp-resumes", "1"))
        changed = {PEER, *(["content-length"] if self.is_kept else [])}
        if self.is_amended:  # the front reads the marks, which it could not if they were compressed
            changed.add("accept-encoding")
        host = self._exchange.headers.get("host", "")
        # With another name, the server can refuse the page of another site.
        if upstream.place.own_host is not None and (is_local_host(host) or name_of(host) in hosts):
            changed.add("host")
            if self._exchange.headers.get("origin", "").partition("://")[2].lower() == host.lower():
                changed.add("origin")
                own.append(("origin", f"https://{upstream.place.own_host}"))
        return [*(pair for pair in end_to_end(self._exchange.pairs) if pair[0] not in changed), *own]

    def content(self, resume: Mapping[str, Any], flight: Flight) -> bytes | AsyncIterator[bytes] | None:
        """The body for the next upstream."""
        if not self.is_kept:
            return self._passing(flight)
        if self._place is None:
            return bytes(self.body) if self.body or self.method == "POST" else None
        before, after = self.body[: self._place], self.body[self._place :]
        comma = b"" if before.rstrip().endswith(b"{") else b","
        return b'%s%s"resume":%s%s' % (before, comma, json.dumps(resume, separators=(",", ":")).encode(), after)

    async def read(self) -> None:
        """Reads the body, as far as there is memory to keep it."""
        headers = self._exchange.headers
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            return
        self.is_kept = self.method in REPEATED
        while self.is_kept and (part := await self._exchange.read_part()):
            self.body += part
            try:
                self._held.grow(len(self.body))
            except Refusal:
                self.is_kept = False
        if self.is_kept and self.is_for_stream:
            self._place = _place(self.body)

    def ask_no_marks(self) -> None:
        """From now on the body is sent as the client wrote it."""
        self._place, self.has_left_marks = None, True

    def forget(self) -> None:
        """The body is not needed any more."""
        self.is_spent = True
        self.body.clear()
        self._held.close()

    async def _passing(self, flight: Flight) -> AsyncIterator[bytes]:
        """Client and upstream have the same time for the whole body. Neither waits on the other's account."""
        self.is_spent = True
        read, self.body = bytes(self.body), bytearray()
        self._held.close()
        loop, left = asyncio.get_running_loop(), self._exchange.times.body
        try:
            part = read or await self._exchange.read_part()
            while part:
                began = loop.time()
                with flight.reading(left):
                    yield part
                spent = loop.time() - began
                left -= spent
                self._exchange.allow(spent)
                part = await self._exchange.read_part()
        except HttpRefusal as refused:
            self.refusal = refused
            raise


def end_to_end(pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """The headers that are not about one connection. Names are in lower case."""
    named = {word.strip().lower() for name, value in pairs if name == "connection" for word in value.split(",")}
    return [pair for pair in pairs if pair[0] not in HOP_BY_HOP and pair[0] not in named - GUARDED]


async def read_request(exchange: Exchange, memory: MessageMemory, upstreams: Upstreams) -> Request:
    """The request with its body, if there is memory for it."""
    request = Request(exchange, upstreams, memory.message(0))
    try:
        await request.read()
    except BaseException:
        request.forget()
        raise
    return request


def form_of(path: str) -> ApiForm:
    """The form of errors about a path."""
    return ANTHROPIC if "/messages" in path else OPENAI


def error_event(path: str, refused: HttpRefusal, sent: bytes) -> bytes:
    """An error as the last event of a stream, of which `sent` came before."""
    form = form_of(path)
    body = form.refusal(refused.status, refused.code, refused.message, "")
    if not path.endswith("/responses"):
        return form.event(body)
    numbers = _NUMBER.findall(sent)
    number = int(numbers[-1]) + 1 if numbers else 0
    error = {"type": "error", "code": refused.code, "message": refused.message, "param": None}
    return b"event: error\ndata: %s\n\n" % json.dumps({**error, "sequence_number": number}).encode()


def gateway_error(code: str, message: str) -> HttpRefusal:
    """An upstream is at fault."""
    return HttpRefusal(HTTPStatus.BAD_GATEWAY, code, message)


def refusal_in(event: bytes) -> HttpRefusal:
    """The error of a server or a gateway that came as an event: with its text, and its status if it names one."""
    text = event.partition(b":")[2].strip().decode(errors="replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, RecursionError):
        error = text
    fields = error if isinstance(error, dict) else {"message": error}
    code = fields.get("code")
    status = HTTPStatus(code) if isinstance(code, int) and code in ERROR_STATUSES else HTTPStatus.BAD_GATEWAY
    name = code if isinstance(code, str) else "upstream_error"
    return HttpRefusal(status, name, str(fields.get("message") or text))


def _place(body: bytearray) -> int | None:
    """Where another field of the object can be put. None: the client resumes by itself, or the body is no stream's.

    Behind all others: so a message about a place in the body is still right.
    """
    end = len(body.rstrip()) - 1
    if end < 1 or body[end : end + 1] != b"}" or not body.lstrip().startswith(b"{") or b'"stream"' not in body:
        return None
    if b'"resume"' in body:
        try:
            if "resume" in json.loads(body):
                return None
        except (ValueError, RecursionError):
            return None
    return end
