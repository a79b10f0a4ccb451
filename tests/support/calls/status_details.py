"""Reads the google.rpc details of a status, from the trailing metadata of a call or of a failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.rpc import error_details_pb2, status_pb2

_KINDS = {
    name: getattr(error_details_pb2, name)
    for name in ("ErrorInfo", "BadRequest", "RetryInfo", "QuotaFailure", "PreconditionFailure", "RequestInfo")
}


@dataclass
class Details:
    """The details of a status that a client's program reads."""

    code: int = 0
    message: str = ""
    reason: str = ""
    domain: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    pushback_ms: int | None = None
    # The other details, by the name of their type.
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The fields that are wrong."""
        found = self.others.get("BadRequest")
        return [] if found is None else [violation.field for violation in found.field_violations]

    @property
    def retry_seconds(self) -> float | None:
        """The delay in RetryInfo."""
        found = self.others.get("RetryInfo")
        return None if found is None else found.retry_delay.ToNanoseconds() / 1e9


def read_details(trailing: Iterable[tuple[str, str | bytes]]) -> Details:
    """Reads details from `(key, value)` pairs; missing ones stay empty."""
    details = Details()
    for key, value in trailing:
        if key == "grpc-retry-pushback-ms":
            details.pushback_ms = int(value)
        if key != "grpc-status-details-bin":
            continue
        assert isinstance(value, bytes)
        status = status_pb2.Status.FromString(value)
        details.code, details.message = status.code, status.message
        for packed in status.details:
            name = packed.TypeName().removeprefix("google.rpc.")
            message = _KINDS[name]()
            assert packed.Unpack(message)
            if name == "ErrorInfo":
                details.reason, details.domain = message.reason, message.domain
                details.metadata = dict(message.metadata)
            else:
                assert name not in details.others
                details.others[name] = message
    return details
