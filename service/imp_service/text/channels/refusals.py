"""What a dialect cannot enforce of a function's schema: an error if the function is strict, else a hint."""

from __future__ import annotations

from dataclasses import dataclass

from imp_service.text.errors import FieldInvalid


@dataclass(frozen=True, slots=True)
class Refusals:
    """The errors about one function's schema."""

    # The field of the schema.
    path: str
    dialect: str
    is_strict: bool

    def error(self, pointer: str, what: str) -> FieldInvalid:
        """The error about something without which no call can be written."""
        return FieldInvalid(self.path, f"at {pointer}: {what} cannot be enforced in the dialect {self.dialect}")

    def check(self, pointer: str, what: str) -> None:
        """Raises FieldInvalid about a restriction, if the function is strict."""
        if self.is_strict:
            raise self.error(pointer, what)
