"""The core's errors in Python: one class for each kind, whether a call raises the error or an event reports it."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service import _core
from imp_service._core import (
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    ModelError,
    ResourceExhausted,
    StateError,
)
from imp_service.tables import REASONS

# The core's reasons, and those of which it knows nothing: the checkpoint's digest and the text of a model.
KIND_OF_REASON: Mapping[str, type[Error]] = {
    **{reason: getattr(_core, kind) for reason, kind in REASONS.items()},
    "WEIGHTS_CORRUPT": ModelError,
    "TOKENIZER_INVALID": ModelError,
    "TEMPLATE_INVALID": ModelError,
    "TEMPLATE_FAILED": InvalidArgument,
    "NO_CHAT_TEMPLATE": StateError,
    "NOT_SUPPORTED_BY_MODEL": StateError,
}

# How a stopped engine refuses every command. Before that it has ended each run with an event that has the reason.
ENGINE_STOPPED = (DeviceError, InternalError)


def make_error(reason: str, message: str, details: Mapping[str, str] | None = None) -> Error:
    """The exception for the reason, message and details of an event."""
    error = KIND_OF_REASON[reason](f"{reason}: {message}")
    error.reason = reason
    error.message = message
    error.details = dict(details or {})
    return error


def field_invalid(field: str, problem: str) -> Error:
    """The exception for a field with an invalid value."""
    return make_error("FIELD_INVALID", f"{field}: {problem}", {"field": field})


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
    "field_invalid",
    "make_error",
]
