"""Checks the head of a request before its body is read: host, origin, and type and size of the body.

A page on another site can make a browser send requests to this machine, and can have its own name resolve to this
machine's address (DNS rebinding). The host and the origin reveal both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from imp_service.http_api.host_names import is_local_host, is_loopback_host, name_of
from imp_service.serving.message_memory import MessageLimit

ANY_ORIGIN = "*"
CHUNKED = "chunked"
METHODS = "GET, POST, OPTIONS"
# Seconds for which a browser remembers the answer to a preflight.
PREFLIGHT_SECONDS = 600
EXPOSED = (
    "x-request-id, request-id, imp-instance-id, imp-approximations, imp-ignored, imp-sampling, imp-max-tokens, "
    "retry-after"
)


class HttpRefusal(Exception):
    """A request that is refused for its head, its path, or the form of its body."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        headers: Sequence[tuple[str, str]] = (),
        *,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers
        # The body is not read, so no other request can follow it.
        self.closes = closes


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one listener."""

    hosts: Sequence[str]
    origins: Sequence[str]
    # Only this machine can reach the listener.
    is_loopback: bool
    max_head_bytes: int

    def check(self, pairs: Sequence[tuple[str, str]], *, has_host: bool) -> list[tuple[str, str]]:
        """Raises HttpRefusal, or returns the CORS headers of the reply."""
        headers = dict(reversed(pairs))
        self._check_form(pairs, headers.get("transfer-encoding", CHUNKED))
        host = headers.get("host")
        if host is None and has_host:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "bad_request", "no host header, expected one", closes=True)
        if host is not None:
            self._check_host(host)
        return self._check_origin(headers.get("origin"), host)

    def preflight(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        """The reply's headers to a CORS preflight: whether a page may send a request."""
        asked = headers.get("access-control-request-headers", "")
        return [
            ("access-control-allow-methods", METHODS),
            ("access-control-allow-headers", asked or "authorization, content-type, x-api-key"),
            ("access-control-max-age", str(PREFLIGHT_SECONDS)),
        ]

    def _check_form(self, pairs: Sequence[tuple[str, str]], coding: str) -> None:
        if sum(len(name) + len(value) for name, value in pairs) > self.max_head_bytes:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            message = f"the request's head has more than limits.max_metadata_bytes = {self.max_head_bytes} bytes"
            raise HttpRefusal(status, "head_too_large", message, closes=True)
        if coding.strip().lower() != CHUNKED:
            message = f"transfer-encoding {coding[:64]}, expected {CHUNKED}"
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "bad_request", message, closes=True)

    def _check_host(self, host: str) -> None:
        if not is_local_host(host) and name_of(host) not in self.hosts:
            raise HttpRefusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "misdirected_request",
                f"host {host[:128]}: not a name of this server; http.hosts can add it",
                closes=True,
            )

    def _check_origin(self, origin: str | None, host: str | None) -> list[tuple[str, str]]:
        if origin is None or self._is_same(origin, host):
            return []
        if not self._is_allowed(origin):
            raise HttpRefusal(
                HTTPStatus.FORBIDDEN,
                "origin_not_allowed",
                f"origin {origin[:128]}: pages of this site may not call; http.origins can allow it",
                closes=True,
            )
        allowed = ANY_ORIGIN if ANY_ORIGIN in self.origins else origin
        return [
            ("access-control-allow-origin", allowed),
            ("access-control-expose-headers", EXPOSED),
            ("vary", "Origin"),
        ]

    def _is_same(self, origin: str, host: str | None) -> bool:
        """Whether the page that sends the request came from this server."""
        scheme, _, rest = origin.partition("://")
        return host is not None and scheme in ("http", "https") and rest.lower() == host.lower()

    def _is_allowed(self, origin: str) -> bool:
        if origin in self.origins or ANY_ORIGIN in self.origins:
            return True
        try:
            parts = urlsplit(origin)
            host = parts.hostname
        except ValueError:
            return False
        return self.is_loopback and parts.scheme in ("http", "https") and host is not None and is_loopback_host(host)


def check_body_head(headers: Mapping[str, str], limit: MessageLimit) -> None:
    """Raises HttpRefusal if the body is not JSON, or is compressed, or is too large.

    A page cannot send JSON to another site without a preflight.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        found = f"content-type {kind[:64]}" if kind else "no content-type"
        raise _unsupported(f"{found}, expected application/json")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise _unsupported(f"content-encoding {coding[:64]}, expected identity: imp reads no compressed body")
    if int(headers.get("content-length", 0)) > limit.n_bytes:
        raise too_large(limit)


def too_large(limit: MessageLimit) -> HttpRefusal:
    """The error of a body above the limit."""
    message = f"the body has more than {limit} bytes"
    return HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "message_too_large", message, closes=True)


def no_place(max_connections: int) -> HttpRefusal:
    """The error on a connection that only probes may use."""
    message = f"connection.max_connections = {max_connections} connections are open, further ones are for /health"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return HttpRefusal(status, "too_many_connections", message, [("retry-after", "1")], closes=True)


def _unsupported(message: str) -> HttpRefusal:
    return HttpRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message, closes=True)
