"""Constraints on the output, as callers give them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Constraint(Protocol):
    """A constraint that an output must match."""

    @property
    def path(self) -> str:
        """The field it came in."""


class ConstraintKind(Enum):
    """The members of `imp.v1.Constraint.kind`, by their field's name."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GBNF = "gbnf"
    CHOICES = "choices"
    JSON_OBJECT = "json_object"


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint. `source` is the text of the first three kinds; `choices` are for the fourth."""

    kind: ConstraintKind
    source: str = ""
    choices: tuple[str, ...] = ()
    # For the JSON kinds: any amount of white space between two tokens, not one space or an indented line break.
    unbounded_whitespace: bool = False
    # False: keywords of a schema that cannot be enforced are hints. They do not constrain the output.
    is_strict: bool = True

    @property
    def path(self) -> str:
        """The field it came in."""
        return f"constraint.{self.kind.value}"
