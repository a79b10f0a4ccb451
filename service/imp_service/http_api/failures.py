"""Failures over HTTP: a status, headers about a retry, and a message. Each API writes the body in its own form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

from imp_service.api.errors import advised
from imp_service.serving.errors.error_table import Detail, Retry
from imp_service.serving.errors.failure import MAX_MESSAGE_BYTES, Failure, shown

Headers = list[tuple[str, str]]
# The most bytes of one message with all violations.
MAX_VIOLATIONS_BYTES = 4096

# Status code of gRPC -> status of HTTP. Others are errors of the server.
STATUSES: Mapping[str, HTTPStatus] = {
    "INVALID_ARGUMENT": HTTPStatus.BAD_REQUEST,
    "FAILED_PRECONDITION": HTTPStatus.BAD_REQUEST,
    # Not 416, which is about ranges of bytes: of these errors only CONTEXT_TOO_LONG is possible here.
    "OUT_OF_RANGE": HTTPStatus.BAD_REQUEST,
    "CANCELLED": HTTPStatus.BAD_REQUEST,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "PERMISSION_DENIED": HTTPStatus.FORBIDDEN,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "ALREADY_EXISTS": HTTPStatus.CONFLICT,
    "ABORTED": HTTPStatus.CONFLICT,
    "RESOURCE_EXHAUSTED": HTTPStatus.TOO_MANY_REQUESTS,
    # Not 501: the request asks what this model or host cannot do, and the server is not at fault.
    "UNIMPLEMENTED": HTTPStatus.BAD_REQUEST,
    "UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "DEADLINE_EXCEEDED": HTTPStatus.GATEWAY_TIMEOUT,
}
# What a caller of this API can do, where the reason alone does not say it.
ADVICE: Mapping[str, str] = {
    "NO_CHAT_TEMPLATE": "continue a text with /v1/completions, or serve a model that is made for chats (instruct)",
}
# Clients of both APIs retry a call with such a status, unless a header says that a retry is useless.
REPEATED = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
RETRIED = frozenset({Retry.YES, Retry.ONCE, Retry.YES_ELSEWHERE})


def status_of(failure: Failure) -> HTTPStatus:
    """The HTTP status."""
    return STATUSES.get(failure.row.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def may_be_repeated(failure: Failure) -> bool:
    """Whether the same call, sent again, can succeed."""
    if failure.row.retry is Retry.UNLESS_NEVER:
        return not failure.can_never_fit
    return failure.row.retry in RETRIED


def headers_of(failure: Failure) -> Headers:
    """Headers that say when the call may be retried, or that a retry is useless."""
    status = status_of(failure)
    headers: Headers = [("www-authenticate", "Bearer")] if status is HTTPStatus.UNAUTHORIZED else []
    if may_be_repeated(failure):
        if Detail.RETRY_INFO in failure.row.details:
            headers.append(("retry-after", str(math.ceil(failure.delay))))
            headers.append(("retry-after-ms", str(math.ceil(failure.delay * 1000))))
    elif status in REPEATED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        headers.append(("x-should-retry", "false"))
    return headers


def message_of(failure: Failure) -> str:
    """The message. It names every violation: the body has no other place for them."""
    if len(failure.violations) < 2:
        return advised(failure.reason, failure.message, ADVICE)
    texts: list[str] = []
    n_bytes = 0
    for each in failure.violations:
        text = shown(str(each), MAX_MESSAGE_BYTES)
        n_bytes += len(text.encode()) + len("; ")
        if n_bytes > MAX_VIOLATIONS_BYTES:
            return f"{'; '.join(texts)}; and {len(failure.violations) - len(texts)} more"
        texts.append(text)
    return "; ".join(texts)
