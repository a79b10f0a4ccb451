"""The errors of the Python API: one class for each kind, whether the library or a server reports the error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

FIELD_INVALID = "FIELD_INVALID"
# A stream would not go on with the same tokens.
RESUME_MISMATCH = "RESUME_MISMATCH"
# What a program can do, where the reason alone does not say it.
ADVICE: Mapping[str, str] = {
    "NO_CHAT_TEMPLATE": "generate() continues a text; a model for chat() is one that is made for chats (instruct)",
}


class Error(Exception):
    """An error with its `reason`, a word for programs, its `message` for people, and its `details`."""

    reason: str
    message: str
    details: dict[str, str]
    # Seconds after which the same call may succeed; None if unknown. Only servers set it.
    retry_after: float | None = None

    @property
    def field(self) -> str | None:
        """The path of the field that has a wrong value, or of the first of them. None for other errors."""
        return self.details.get("field") or None


class InvalidArgument(Error):
    """The arguments of the call are invalid."""


class StateError(Error):
    """The model, the session or the server is not in a state for this call."""


class ResourceExhausted(Error):
    """A queue, the cache or memory is full."""


class ModelError(Error):
    """The model's files cannot be used."""


class DeviceError(Error):
    """The hardware is at fault."""


class InternalError(Error):
    """imp is at fault."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A field with a wrong value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class FieldsInvalid(InvalidArgument):
    """FIELD_INVALID, with every field that has a wrong value."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        self.reason = FIELD_INVALID
        self.message = "; ".join(map(str, self.violations))
        self.details = {}
        super().__init__(f"{self.reason}: {self.message}")

    @property
    def field(self) -> str | None:
        """The path of the first field that has a wrong value."""
        return self.violations[0].path if self.violations else None


E = TypeVar("E", bound=Error)


def error_of(kind: type[E], reason: str, message: str, details: Mapping[str, str] | None = None) -> E:
    """Makes an error of this class."""
    error = kind(f"{reason}: {message}")
    error.reason = reason
    error.message = message
    error.details = dict(details or {})
    return error


def advised(reason: str, message: str, advice: Mapping[str, str] = ADVICE) -> str:
    """A message with advice for its reader. A server's advice, which is for others, is left out."""
    return f"{message.partition('; ')[0]}; {advice[reason]}" if reason in advice else message


def left_early() -> Error:
    """The error of a result that does not exist, because the generation was closed early."""
    return error_of(StateError, "CANCELLED", "the generation was closed before its end")


def refuse(violations: Iterable[Violation]) -> None:
    """Raises FieldsInvalid if there are violations."""
    found = tuple(violations)
    if found:
        raise FieldsInvalid(found)


def invalid(path: str, message: str) -> FieldsInvalid:
    """Makes the error of one field."""
    return FieldsInvalid([Violation(path, message)])
