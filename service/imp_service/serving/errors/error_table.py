"""The error table of imp.v1 as data: each reason with its status code, its details, and whether to retry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Detail(Enum):
    """Messages of google.rpc that a reason has besides ErrorInfo."""

    BAD_REQUEST = "BadRequest"
    PRECONDITION_FAILURE = "PreconditionFailure"
    QUOTA_FAILURE = "QuotaFailure"
    REQUEST_INFO = "RequestInfo"
    RETRY_INFO = "RetryInfo"


class Retry(Enum):
    """Whether a client may send the identical call again."""

    NO = "no"
    YES = "yes"
    ONCE = "once"
    ELSEWHERE = "elsewhere"
    YES_ELSEWHERE = "yes, elsewhere"
    # Retry if the request can fit at all. If it can never fit, the pushback stops gRPC's own retry.
    UNLESS_NEVER = "yes; no"
    AFTER_READING = "after reading"
    OPEN_NEW = "open a new session"
    NOT_ASKED = "–"


class Pushback(Enum):
    """The trailing `grpc-retry-pushback-ms`, which gRPC's own retry policies obey."""

    NONE = "none"
    AS_RETRY_INFO = "pushback"
    NEVER = "pushback never"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row. `metadata` has the keys of ErrorInfo, `retry_after` the default delay of RetryInfo in seconds."""

    code: str  # the name of a code of google.rpc
    retry: Retry
    metadata: tuple[str, ...] = ()
    details: tuple[Detail, ...] = ()
    pushback: Pushback = Pushback.NONE
    retry_after: float = 0.0
    # DEADLINE_EXCEEDED and CANCELLED are gRPC's own: their status has no reason.
    has_reason: bool = True


_BAD_REQUEST = (Detail.BAD_REQUEST,)
_RETRY = (Detail.RETRY_INFO,)
_INVALID, _RANGE, _MISSING = "INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND"
_STATE, _FULL, _AWAY = "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE"
_CONTEXT = ("prompt_tokens", "max_context_tokens")
# Seconds: about as long as a step of a session takes, and as a place in the queue takes to become free.
_STEP, _PLACE = 0.05, 1.0
_PUSHED = Pushback.AS_RETRY_INFO

BUG = "BUG"
CANCELLED = "CANCELLED"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
DRAINING = "DRAINING"
FIELD_INVALID = "FIELD_INVALID"
MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"

ERRORS: Mapping[str, ErrorRow] = {
    FIELD_INVALID: ErrorRow(_INVALID, Retry.NO, details=_BAD_REQUEST),
    "TEMPLATE_FAILED": ErrorRow(_INVALID, Retry.NO, details=_BAD_REQUEST),
    "CONTEXT_TOO_LONG": ErrorRow(_RANGE, Retry.NO, _CONTEXT),
    "POSITION_BEYOND_END": ErrorRow(_RANGE, Retry.NO, ("position", "held")),
    "POSITION_INSIDE_MEDIA": ErrorRow(_RANGE, Retry.NO, ("position", "first", "end")),
    "MODEL_NOT_SERVED": ErrorRow(_MISSING, Retry.ELSEWHERE, ("served",)),
    "SESSION_NOT_FOUND": ErrorRow(_MISSING, Retry.OPEN_NEW, ("session_id",)),
    "SESSION_EXPIRED": ErrorRow(_MISSING, Retry.OPEN_NEW, ("session_id",)),
    "SESSION_LOST": ErrorRow(_MISSING, Retry.OPEN_NEW, ("session_id", "instance_id")),
    "REQUEST_ID_IN_USE": ErrorRow("ALREADY_EXISTS", Retry.NO, ("request_id",)),
    "POSITION_MISMATCH": ErrorRow("ABORTED", Retry.AFTER_READING, ("expected", "held")),
    "SESSION_BUSY": ErrorRow("ABORTED", Retry.YES, details=_RETRY, retry_after=_STEP),
    "NO_CANDIDATE": ErrorRow(_STATE, Retry.NO, ("position",)),
    "NO_PENDING_TOKEN": ErrorRow(_STATE, Retry.NO, ("held",)),
    "RESUME_MISMATCH": ErrorRow(_STATE, Retry.ELSEWHERE, ("differs",)),
    "FEATURE_DISABLED": ErrorRow(_STATE, Retry.NO, details=(Detail.PRECONDITION_FAILURE,)),
    "NO_CHAT_TEMPLATE": ErrorRow(_STATE, Retry.NO),
    "TEMPLATE_INVALID": ErrorRow(_STATE, Retry.NO),
    "CONFIG_INVALID": ErrorRow(_STATE, Retry.NO),
    "QUEUE_FULL": ErrorRow(
        _FULL, Retry.YES, details=(Detail.QUOTA_FAILURE, Detail.RETRY_INFO), pushback=_PUSHED, retry_after=_PLACE
    ),
    "KV_FULL": ErrorRow(_FULL, Retry.UNLESS_NEVER, ("needed", "available"), _RETRY, _PUSHED, _PLACE),
    "NO_MEMORY": ErrorRow(_FULL, Retry.YES, details=_RETRY, retry_after=_PLACE),
    "SESSIONS_FULL": ErrorRow(_FULL, Retry.YES, details=_RETRY, pushback=_PUSHED, retry_after=_PLACE),
    "TENANT_LIMIT": ErrorRow(_FULL, Retry.YES, details=_RETRY, pushback=_PUSHED, retry_after=_PLACE),
    "SLOW_CLIENT": ErrorRow(_FULL, Retry.NO, ("unread",)),
    MESSAGE_TOO_LARGE: ErrorRow(_FULL, Retry.NO, ("message_bytes", "max_message_bytes"), pushback=Pushback.NEVER),
    "LOADING": ErrorRow(_AWAY, Retry.YES, details=_RETRY, retry_after=_PLACE),
    DRAINING: ErrorRow(_AWAY, Retry.YES_ELSEWHERE, details=_RETRY, pushback=_PUSHED),
    DEADLINE_EXCEEDED: ErrorRow(DEADLINE_EXCEEDED, Retry.NO, has_reason=False),
    CANCELLED: ErrorRow(CANCELLED, Retry.NOT_ASKED, has_reason=False),
    "NOT_SUPPORTED_BY_MODEL": ErrorRow("UNIMPLEMENTED", Retry.NO, ("feature",)),
    "NOT_SUPPORTED_BY_HOST": ErrorRow("UNIMPLEMENTED", Retry.NO, ("feature",)),
    "TOKEN_MISSING": ErrorRow("UNAUTHENTICATED", Retry.NO),
    "TOKEN_INVALID": ErrorRow("UNAUTHENTICATED", Retry.NO),
    "NOT_ALLOWED": ErrorRow("PERMISSION_DENIED", Retry.NO),
    "NON_FINITE": ErrorRow("INTERNAL", Retry.ONCE, ("position",)),
    "DEVICE_FAULT": ErrorRow("INTERNAL", Retry.ELSEWHERE),
    "STALLED": ErrorRow("INTERNAL", Retry.ONCE),
    BUG: ErrorRow("INTERNAL", Retry.NO, details=(Detail.REQUEST_INFO,)),
    "WEIGHTS_CORRUPT": ErrorRow("DATA_LOSS", Retry.NO, ("tensor",)),
}
