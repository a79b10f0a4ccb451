"""The core's errors in Python: one class per kind, whether thrown at the door or told by an event."""

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


def field_invalid(field: str, problem: str) -> Error:
    """The exception for a field that is not what it may be."""
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
