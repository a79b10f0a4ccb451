"""A failure as a gRPC status: its code, google.rpc details for a program, and the delay of gRPC's own retry."""

from __future__ import annotations

import math
from collections.abc import Mapping

import grpc
from google.protobuf.message import Message

from imp_service.api.errors import advised
from imp_service.pb.inference_pb2 import StepError
from imp_service.rpc.status_details import (
    bad_request,
    error_info,
    packed_status,
    precondition_failure,
    quota_failure,
    request_info,
    retry_info,
)
from imp_service.serving.errors.error_table import Detail, Pushback
from imp_service.serving.errors.failure import Failure

DETAILS_KEY = "grpc-status-details-bin"
PUSHBACK_KEY = "grpc-retry-pushback-ms"
# gRPC retries by status code, also RESOURCE_EXHAUSTED. A negative pushback stops it.
NEVER_MS = -1
# At once. A call of gRPC for Python 1.76 to 1.85 never ends after a pushback of 0.
SOONEST_MS = 1
# gRPC waits for a pushback in silence, however long it is. A longer wait is the caller's decision.
LONGEST_PUSHBACK = 10.0  # seconds
# What a caller of this API can do, where the reason alone does not say it.
ADVICE: Mapping[str, str] = {
    "NO_CHAT_TEMPLATE": "send `text` in place of `chat`, or serve a model that is made for chats (instruct)",
}

TrailingMetadata = tuple[tuple[str, str | bytes], ...]


def status_code(failure: Failure) -> grpc.StatusCode:
    """The status code."""
    return grpc.StatusCode[failure.row.code]


def message_of(failure: Failure) -> str:
    """The message of the status."""
    return advised(failure.reason, failure.message, ADVICE)


def trailing_metadata(failure: Failure) -> TrailingMetadata:
    """The details of the status, and the pushback."""
    if not failure.row.has_reason:
        return ()
    details = [error_info(failure.reason, failure.metadata)]
    details += [_detail(detail, failure) for detail in failure.row.details if not _is_left_out(detail, failure)]
    packed = packed_status(status_code(failure).value[0], message_of(failure), details)
    trailing: TrailingMetadata = ((DETAILS_KEY, packed),)
    pushback_ms = _pushback_ms(failure)
    return trailing if pushback_ms is None else (*trailing, (PUSHBACK_KEY, str(pushback_ms)))


def step_error(failure: Failure) -> StepError:
    """The failure as a message, for one session of a batched step or one request of a stream."""
    return StepError(code=status_code(failure).value[0], reason=failure.reason, message=message_of(failure))


def _pushback_ms(failure: Failure) -> int | None:
    """The delay of gRPC's own retry, negative for none; None if the status has no pushback."""
    match failure.row.pushback:
        case Pushback.NEVER:
            return NEVER_MS
        case Pushback.AS_RETRY_INFO:
            is_left_to_caller = failure.can_never_fit or failure.delay > LONGEST_PUSHBACK
            return NEVER_MS if is_left_to_caller else max(SOONEST_MS, math.ceil(failure.delay * 1000))
    return None


def _is_left_out(detail: Detail, failure: Failure) -> bool:
    return detail is Detail.RETRY_INFO and failure.can_never_fit


def _detail(detail: Detail, failure: Failure) -> Message:
    match detail:
        case Detail.BAD_REQUEST:
            return bad_request(failure.violations)
        case Detail.RETRY_INFO:
            return retry_info(failure.delay)
        case Detail.QUOTA_FAILURE:
            return quota_failure(failure.metadata.get("bound", ""), failure.message)
        case Detail.PRECONDITION_FAILURE:
            return precondition_failure(failure.reason, failure.metadata.get("feature", ""), failure.message)
        case Detail.REQUEST_INFO:
            return request_info(failure.request_id)
