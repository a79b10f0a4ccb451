"""The core's errors in Python: the classes of the API, whether a call raises the error or an event reports it."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service import _core
from imp_service.api.errors import (
    FIELD_INVALID,
    RESUME_MISMATCH,
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    ModelError,
    ResourceExhausted,
    StateError,
    error_of,
)
from imp_service.tables import REASONS

_KINDS = {
    kind.__name__: kind
    for kind in (Error, InvalidArgument, StateError, ResourceExhausted, ModelError, DeviceError, InternalError)
}
# The bindings look a class up in their module when they raise an error: from here on they raise those of the API.
for _name, _kind in _KINDS.items():
    setattr(_core, _name, _kind)

# The core's reasons, and those of errors outside the core: of the checkpoint's digest and of a model's text.
KIND_OF_REASON: Mapping[str, type[Error]] = {
    **{reason: _KINDS[kind] for reason, kind in REASONS.items()},
    "WEIGHTS_CORRUPT": ModelError,
    "TOKENIZER_INVALID": ModelError,
    "TEMPLATE_INVALID": ModelError,
    "TEMPLATE_FAILED": InvalidArgument,
    "NO_CHAT_TEMPLATE": StateError,
    "NOT_SUPPORTED_BY_MODEL": StateError,
    RESUME_MISMATCH: StateError,
}

# How a stopped engine refuses every command. Before that it has ended each run with an event that has the reason.
ENGINE_STOPPED = (DeviceError, InternalError)


def make_error(reason: str, message: str, details: Mapping[str, str] | None = None) -> Error:
    """The exception for the reason, message and details of an event."""
    return error_of(KIND_OF_REASON[reason], reason, message, details)


def field_invalid(field: str, problem: str) -> Error:
    """The exception for a field with an invalid value."""
    return make_error(FIELD_INVALID, f"{field}: {problem}", {"field": field})


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
