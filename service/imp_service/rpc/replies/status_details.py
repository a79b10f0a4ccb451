"""The messages of google.rpc that go with a status, each small enough for any client's bound on metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from imp_service.generation.validate import Violation
from imp_service.rpc.durations import duration

DOMAIN = "imp.v1"
# A client takes 8 KiB of metadata by default, the base64 of the details among it; beyond that it sees another error.
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
    """The reason, and what belongs to it."""
    info: Message = error_details_pb2.ErrorInfo(
        reason=reason,
        domain=DOMAIN,
        metadata={key: shown(value, MAX_VALUE_BYTES) for key, value in metadata.items()},
    )
    return info


def bad_request(violations: Sequence[Violation]) -> Message:
    """Every field that is wrong, as far as the bound goes; where it does not reach, the last entry counts the rest."""
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
    """When the same call may succeed."""
    info: Message = error_details_pb2.RetryInfo(retry_delay=duration(seconds))
    return info


def quota_failure(bound: str, message: str) -> Message:
    """Which bound of the server was reached."""
    violation = error_details_pb2.QuotaFailure.Violation(subject=bound, description=message)
    failure: Message = error_details_pb2.QuotaFailure(violations=[violation])
    return failure


def precondition_failure(reason: str, feature: str, message: str) -> Message:
    """Which switch of the server is off."""
    violation = error_details_pb2.PreconditionFailure.Violation(type=reason, subject=feature, description=message)
    failure: Message = error_details_pb2.PreconditionFailure(violations=[violation])
    return failure


def request_info(request_id: str) -> Message:
    """Where the log has the rest."""
    info: Message = error_details_pb2.RequestInfo(request_id=request_id)
    return info


def shown(text: str, max_bytes: int) -> str:
    """Fit for a status: control characters escaped, cut at a bound."""
    line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return line.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
