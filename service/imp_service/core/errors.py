"""The core's errors in Python: one class per kind, whether thrown at the door or told by an event."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service._core import (
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    ModelError,
    ResourceExhausted,
    StateError,
)

KIND_OF_REASON: Mapping[str, type[Error]] = {
    "FIELD_INVALID": InvalidArgument,
    "CONTEXT_TOO_LONG": InvalidArgument,
    "POSITION_BEYOND_END": InvalidArgument,
    "POSITION_MISMATCH": StateError,
    "SESSION_NOT_FOUND": StateError,
    "SESSION_EXPIRED": StateError,
    "SESSION_BUSY": StateError,
    "NO_PENDING_TOKEN": StateError,
    "NO_CANDIDATE": StateError,
    "FEATURE_DISABLED": StateError,
    "CANCELLED": StateError,
    "DRAINING": StateError,
    "QUEUE_FULL": ResourceExhausted,
    "KV_FULL": ResourceExhausted,
    "NO_MEMORY": ResourceExhausted,
    "SESSIONS_FULL": ResourceExhausted,
    "TENANT_LIMIT": ResourceExhausted,
    "DEVICE_FAULT": DeviceError,
    "WEIGHTS_CORRUPT": ModelError,
    "NON_FINITE": InternalError,
    "BUG": InternalError,
}

# What an engine that has stopped answers every command with. It has ended each run before, and its events say why.
ENGINE_STOPPED = (DeviceError, InternalError)


def make_error(reason: str, message: str, details: Mapping[str, str] | None = None) -> Error:
    """The exception for an error that came as data."""
    error = KIND_OF_REASON[reason](f"{reason}: {message}")
    error.reason = reason
    error.message = message
    error.details = dict(details or {})
    return error


__all__ = [
    "ENGINE_STOPPED",
    "KIND_OF_REASON",
    "DeviceError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "ModelError",
    "ResourceExhausted",
    "StateError",
    "make_error",
]
