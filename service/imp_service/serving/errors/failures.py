"""Turns any exception into the failure of a call: a reason, a sentence for a person, and details for a program."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from imp_service.api.errors import FieldsInvalid, Violation
from imp_service.config.errors import system_refusal
from imp_service.core import Error
from imp_service.serving.calls import Call
from imp_service.serving.errors.error_table import BUG, CANCELLED, ERRORS, FIELD_INVALID, Retry
from imp_service.serving.errors.failure import MAX_MESSAGE_BYTES, Failure, shown
from imp_service.serving.refusal import Refusal
from imp_service.telemetry.log import Log
from imp_service.text import TextError

# The core adds its whole capacity to the details if the request can never fit. Callers do not get this detail.
CAPACITY = "total"


def failure_of(error: BaseException, *, request_id: str) -> Failure:
    """Converts an exception to a failure.

    For an unexpected exception, the caller gets only the request id in the log.
    """
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
