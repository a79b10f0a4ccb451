"""Converts a failed call to the error that the library would raise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...api.errors import (
    FIELD_INVALID,
    DeviceError,
    Error,
    FieldsInvalid,
    InternalError,
    InvalidArgument,
    ModelError,
    ResourceExhausted,
    StateError,
    Violation,
    advised,
    error_of,
)
from ..failure import CallFailure
from ..stream_order import StreamBroken

# By the status code, so that a reason of a later revision has a class too; other codes are StateError.
_KIND_OF_CODE: Mapping[str, type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": InvalidArgument,
    "UNAUTHENTICATED": InvalidArgument,
    "PERMISSION_DENIED": InvalidArgument,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "DATA_LOSS": ModelError,
    "INTERNAL": InternalError,
    "UNKNOWN": InternalError,
}
# Reasons whose class differs from that of their code.
_KIND_OF_REASON: Mapping[str, type[Error]] = {"DEVICE_FAULT": DeviceError, "TEMPLATE_INVALID": ModelError}
# Fields whose path in a call differs from their path in the API.
_NAMES = {
    "token_ids.ids": "token_ids",
    "constraint.choices.values": "constraint.choices",
    "imp-tenant": "tenant",
    "imp-priority": "priority",
}
# The prefix of fields in a call with one session. In a call with several, each failure is reported with its session.
_STEP = re.compile(r"^steps\[\d+\]\.")


def kind_of(reason: str, code: str) -> type[Error]:
    """The class of an error."""
    return _KIND_OF_REASON.get(reason) or _KIND_OF_CODE.get(code, StateError)


def error_of_failure(failure: CallFailure) -> Error:
    """The error of a call."""
    error: Error
    if failure.reason == FIELD_INVALID and failure.violations:
        error = FieldsInvalid([Violation(_path_of(v.path), v.description) for v in failure.violations])
    else:
        kind = kind_of(failure.reason, failure.code)
        words = advised(failure.reason, failure.text or "no message")
        error = error_of(kind, failure.reason, words, failure.metadata)
    error.retry_after = failure.retry_after
    return error


def _path_of(path: str) -> str:
    """The path of a field, as the API has it: of a step, without the session's place in the call."""
    path = _STEP.sub("", path)
    name, bracket, index = path.partition("[")
    return _NAMES.get(name, name) + bracket + index


@contextmanager
def translating_call_failures() -> Iterator[None]:
    """Raises failures of calls as errors of the API. A decorator, too."""
    try:
        yield
    except CallFailure as failure:
        raise error_of_failure(failure) from None
    except StreamBroken as broken:
        raise error_of(InternalError, broken.reason, broken.message) from None
