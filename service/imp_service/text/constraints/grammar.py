"""Checks a request's constraint, and writes it as a grammar in the library's notation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

from llguidance import regex_to_lark

from imp_service.api.constraint_spec import ConstraintKind, ConstraintSpec
from imp_service.text.constraints.gbnf import compile_gbnf
from imp_service.text.constraints.grammar_checks import check_regex, quote_for_regex
from imp_service.text.constraints.json_schema import check_json_schema
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits

# White space between two tokens of JSON: one space, or a line break and an indentation. Without a limit a small model
# spends its output on blanks.
MAX_INDENT, MAX_TABS = 32, 16
_SPACES = rf"(?:\x20|\x0D?\x0A(?:\x20{{0,{MAX_INDENT}}}|\x09{{1,{MAX_TABS}}}))"
_UNBOUNDED_SPACES = r"[\x20\x0A\x0D\x09]+"
# Otherwise the library forces one tokenization where the grammar has a single continuation; the mask must hold every
# token that can continue the text.
_HEADER = '%llguidance {"no_forcing": true}\n'


class RuleWriter(Protocol):
    """A constraint that writes its own rules."""

    def rules(self, limits: TextLimits) -> str: ...


def write_grammar(constraint: ConstraintSpec | RuleWriter, limits: TextLimits) -> str:
    """Raises `FieldInvalid` if the constraint is invalid or too large."""
    if not isinstance(constraint, ConstraintSpec):
        return _HEADER + constraint.rules(limits)
    return _GRAMMARS[constraint.kind](constraint, limits)


def _json_schema(constraint: ConstraintSpec, limits: TextLimits) -> str:
    schema = check_json_schema(constraint.source, constraint.path, limits, is_strict=constraint.is_strict)
    return _from_schema(schema, constraint)


def _json_object(constraint: ConstraintSpec, _limits: TextLimits) -> str:
    return _from_schema({"type": "object"}, constraint)


def _from_schema(schema: dict[str, object], constraint: ConstraintSpec) -> str:
    return schema_grammar(schema, spaces=_UNBOUNDED_SPACES if constraint.unbounded_whitespace else _SPACES)


def schema_grammar(schema: Mapping[str, object], *, spaces: str = _SPACES) -> str:
    """Returns the grammar of JSON of this schema."""
    return f"{_HEADER}start: {json_rule(schema, spaces=spaces)}\n"


def json_rule(schema: Mapping[str, object], *, spaces: str = _SPACES) -> str:
    """Returns the body of a grammar rule for JSON of this schema. `spaces` matches white space between two tokens."""
    return f"%json {json.dumps({**schema, 'x-guidance': {'whitespace_pattern': spaces}})}"


def _regex(constraint: ConstraintSpec, limits: TextLimits) -> str:
    check_regex(constraint.source, constraint.path, limits)
    return _from_regex(constraint.source)


def _from_regex(source: str) -> str:
    # \d matches only ASCII digits, which programs can parse.
    return f"{_HEADER}start: /{regex_to_lark(source, 'd')}/\n"


def _gbnf(constraint: ConstraintSpec, limits: TextLimits) -> str:
    compiled = compile_gbnf(constraint.source, constraint.path, limits)
    return _from_regex(compiled.source) if compiled.is_regex else _HEADER + compiled.source


def _choices(constraint: ConstraintSpec, limits: TextLimits) -> str:
    path, choices = constraint.path, constraint.choices
    if not 1 <= len(choices) <= limits.choices:
        raise FieldInvalid(path, f"{len(choices)} choices, expected 1 to {limits.choices}")
    n_bytes = [len(choice.encode("utf-8", "surrogatepass")) for choice in choices]
    for index, n in enumerate(n_bytes):
        if not 1 <= n <= limits.choice_bytes:
            raise FieldInvalid(f"{path}.values[{index}]", f"{n} bytes, expected 1 to {limits.choice_bytes}")
    if sum(n_bytes) > limits.constraint_bytes:
        raise FieldInvalid(path, f"{sum(n_bytes)} bytes in all, limit {limits.constraint_bytes}")
    return _from_regex("|".join(quote_for_regex(choice) for choice in dict.fromkeys(choices)))


_GRAMMARS: dict[ConstraintKind, Callable[[ConstraintSpec, TextLimits], str]] = {
    ConstraintKind.JSON_SCHEMA: _json_schema,
    ConstraintKind.REGEX: _regex,
    ConstraintKind.GBNF: _gbnf,
    ConstraintKind.CHOICES: _choices,
    ConstraintKind.JSON_OBJECT: _json_object,
}
