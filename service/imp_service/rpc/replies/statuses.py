"""Turns any exception into one gRPC status: code, a sentence for a person, and google.rpc details for a program."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message

from imp_service.config.errors import system_refusal
from imp_service.core import Error
from imp_service.generation.validate import FieldsInvalid, Violation
from imp_service.pb.inference_pb2 import StepError
from imp_service.rpc.call import Call
from imp_service.rpc.replies.error_table import BUG, CANCELLED, ERRORS, FIELD_INVALID, Detail, ErrorRow, Pushback, Retry
from imp_service.rpc.replies.status_details import (
    bad_request,
    error_info,
    packed_status,
    precondition_failure,
    quota_failure,
    request_info,
    retry_info,
    shown,
)
from imp_service.serving.refusal import Refusal
from imp_service.telemetry.log import Log
from imp_service.text import TextError

DETAILS_KEY = "grpc-status-details-bin"
PUSHBACK_KEY = "grpc-retry-pushback-ms"
# gRPC retries by status code, also RESOURCE_EXHAUSTED. A negative pushback stops it.
NEVER_MS = -1
# The core adds its whole capacity to the details if the request can never fit. Callers do not get this detail.
CAPACITY = "total"
MAX_MESSAGE_BYTES = 512

TrailingMetadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call, or one session's step in it, fails."""

    reason: str
    message: str
    request_id: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: Sequence[Violation] = ()
    retry_after: float | None = None
    can_never_fit: bool = False

    @property
    def row(self) -> ErrorRow:
        """The reason's row in the error table."""
        return ERRORS[self.reason]

    @property
    def code(self) -> grpc.StatusCode:
        """The status code."""
        return self.row.code

    @property
    def is_bug(self) -> bool:
        """An unexpected exception. The log has its traceback; the status does not."""
        return self.reason == BUG

    @property
    def pushback_ms(self) -> int | None:
        """The delay of gRPC's own retry, negative for none; None if the status has no pushback."""
        match self.row.pushback:
            case Pushback.ZERO:
                return 0
            case Pushback.NEVER:
                return NEVER_MS
            case Pushback.AS_RETRY_INFO:
                return NEVER_MS if self.can_never_fit else math.ceil(self._delay * 1000)
        return None

    def trailing_metadata(self) -> TrailingMetadata:
        """The details of the status, and the pushback."""
        if not self.row.has_reason:
            return ()
        details = [error_info(self.reason, self.metadata)]
        details += [self._detail(detail) for detail in self.row.details if not self._is_left_out(detail)]
        trailing: TrailingMetadata = ((DETAILS_KEY, packed_status(self.code.value[0], self.message, details)),)
        pushback_ms = self.pushback_ms
        return trailing if pushback_ms is None else (*trailing, (PUSHBACK_KEY, str(pushback_ms)))

    def step_error(self) -> StepError:
        """The failure as a message, for one session of a batched step or one request of a stream."""
        return StepError(code=self.code.value[0], reason=self.reason, message=self.message)

    @property
    def _delay(self) -> float:
        return self.row.retry_after if self.retry_after is None else self.retry_after

    def _is_left_out(self, detail: Detail) -> bool:
        return detail is Detail.RETRY_INFO and self.can_never_fit

    def _detail(self, detail: Detail) -> Message:
        match detail:
            case Detail.BAD_REQUEST:
                return bad_request(self.violations)
            case Detail.RETRY_INFO:
                return retry_info(self._delay)
            case Detail.QUOTA_FAILURE:
                return quota_failure(self.metadata.get("bound", ""), self.message)
            case Detail.PRECONDITION_FAILURE:
                return precondition_failure(self.reason, self.metadata.get("feature", ""), self.message)
            case Detail.REQUEST_INFO:
                return request_info(self.request_id)


def failure_of(error: BaseException, *, request_id: str) -> Failure:
    """The failure that an exception becomes. Of an unexpected one the caller gets only the request id in the log."""
    if isinstance(error, asyncio.CancelledError):
        return Failure(CANCELLED, "the call was cancelled", request_id)
    if system_refusal(error):
        return Failure("NO_MEMORY", "an allocation failed; nothing has changed", request_id)
    reason = error.reason if isinstance(error, Error | TextError | Refusal) else BUG
    if reason == BUG or reason not in ERRORS:
        return Failure(BUG, f"internal error; the log has it under request id {request_id}", request_id)
    if isinstance(error, TextError):
        violation = Violation(error.path, error.message)
        return Failure(reason, shown(str(violation), MAX_MESSAGE_BYTES), request_id, violations=(violation,))
    assert isinstance(error, Error | Refusal)  # narrows
    metadata = dict(error.details)
    capacity = metadata.pop(CAPACITY, None) if ERRORS[reason].retry is Retry.UNLESS_NEVER else None
    return Failure(
        reason,
        shown(error.message, MAX_MESSAGE_BYTES),
        request_id,
        metadata=metadata,
        violations=violations_of(error),
        retry_after=error.retry_after if isinstance(error, Refusal) else None,
        can_never_fit=capacity is not None,
    )


def violations_of(error: Error | Refusal) -> Sequence[Violation]:
    """The fields that an error is about. The core puts the field in its details and before its message."""
    if isinstance(error, FieldsInvalid):
        return error.violations
    if error.reason != FIELD_INVALID:
        return ()
    path = error.details.get("field", "")
    return (Violation(path, error.message.removeprefix(f"{path}: ")),)


def reported_failure(error: Exception, call: Call, log: Log) -> Failure:
    """The failure of a call or of one session's step in it. A bug is logged with the call's request id.

    Drops the traceback of the error.
    """
    failure = failure_of(error, request_id=call.request_id)
    if failure.is_bug:
        log.raised("bug", error, request_id=call.request_id, method=call.method)
    drop_frames(error)
    return failure


def drop_frames(error: BaseException) -> None:
    """Drops the tracebacks of an error and of its causes.

    Their frames refer to the request, and often to the error itself. Such a cycle, perhaps with a prompt of a
    megabyte, lives until the next full garbage collection.
    """
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        left += (each.__cause__, each.__context__)
