"""The google.rpc messages of a status, each small enough for the metadata limit of every client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from imp_service.api.errors import Violation
from imp_service.rpc.durations import duration
from imp_service.serving.errors.failure import shown

DOMAIN = "imp.v1"
# A client takes 8 KiB of metadata by default, with the details in base64. With more it reports another error.
MAX_PATH_BYTES = 256
MAX_VALUE_BYTES = 1024
MAX_VIOLATIONS_BYTES = 3 * 1024


def packed_status(code: int, message: str, details: Sequence[Message]) -> bytes:
    """The google.rpc.Status of `grpc-status-details-bin`."""
    status = status_pb2.Status(code=code, message=message)
    for detail in details:
        wrapped = Any()
        wrapped.Pack(detail, deterministic=True)
        status.details.append(wrapped)
    return bytes(status.SerializeToString(deterministic=True))


def error_info(reason: str, metadata: Mapping[str, str]) -> Message:
    """The reason and its metadata."""
    info: Message = error_details_pb2.ErrorInfo(
        reason=reason,
        domain=DOMAIN,
        metadata={key: shown(value, MAX_VALUE_BYTES) for key, value in metadata.items()},
    )
    return info


def bad_request(violations: Sequence[Violation]) -> Message:
    """Every invalid field, up to the limit of bytes. Beyond it the last entry has the number of the rest."""
    fields = []
    n_bytes = 0
    for i, violation in enumerate(violations):
        path, words = shown(violation.path, MAX_PATH_BYTES), shown(violation.message, MAX_PATH_BYTES)
        n_bytes += len(path.encode()) + len(words.encode()) + 8
        if n_bytes > MAX_VIOLATIONS_BYTES:
            fields.append(error_details_pb2.BadRequest.FieldViolation(description=f"and {len(violations) - i} more"))
            break
        fields.append(error_details_pb2.BadRequest.FieldViolation(field=path, description=words))
    found: Message = error_details_pb2.BadRequest(field_violations=fields)
    return found


def retry_info(seconds: float) -> Message:
    """When the call may be retried."""
    info: Message = error_details_pb2.RetryInfo(retry_delay=duration(seconds))
    return info


def quota_failure(bound: str, message: str) -> Message:
    """Which limit of the server was reached."""
    violation = error_details_pb2.QuotaFailure.Violation(subject=bound, description=message)
    failure: Message = error_details_pb2.QuotaFailure(violations=[violation])
    return failure


def precondition_failure(reason: str, feature: str, message: str) -> Message:
    """Which feature of the server is off."""
    violation = error_details_pb2.PreconditionFailure.Violation(type=reason, subject=feature, description=message)
    failure: Message = error_details_pb2.PreconditionFailure(violations=[violation])
    return failure


def request_info(request_id: str) -> Message:
    """The request id, to find the error in the log."""
    info: Message = error_details_pb2.RequestInfo(request_id=request_id)
    return info
