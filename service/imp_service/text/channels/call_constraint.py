"""Forces an output to be calls: the framing of a dialect around arguments that fit the function's schema.

The output may also be content instead, if a constraint says which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from imp_service.api.constraint_spec import ConstraintSpec
from imp_service.text.channels.dialect import CallForm, Dialect
from imp_service.text.channels.notation_rules import notation_rules
from imp_service.text.channels.pattern import BLANK, MAX_NAME_BYTES, is_name
from imp_service.text.channels.refusals import Refusals
from imp_service.text.channels.text_parameters import parameter_rules
from imp_service.text.channels.tools import Tool
from imp_service.text.constraints.grammar import json_rule, write_grammar
from imp_service.text.constraints.grammar_checks import quote_for_regex
from imp_service.text.constraints.json_schema import check_json_schema
from imp_service.text.constraints.schema_core import Schema
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits

# The white space that a blank of a pattern may stand for in a constraint.
_SPACES = r"[ \n]{0,2}"
# The same between two tokens of a call that is JSON as a whole.
_SPACES_OF_CALL = r"[\x20\x0A]{1,2}"


@dataclass(frozen=True, slots=True)
class Function:
    """A function that may be called, with its schema as JSON, and the schema's field for errors."""

    name: str
    schema: str
    path: str
    is_strict: bool = False

    @classmethod
    def of(cls, tool: Tool) -> Function:
        """Makes the function of a tool."""
        return cls(tool.name, json.dumps(tool.schema), tool.path, tool.is_strict)


@dataclass(frozen=True, slots=True)
class CallConstraint:
    """The output is calls of these functions, in the dialect's first form."""

    dialect: Dialect
    functions: tuple[Function, ...]
    # One call after another, as many as the model writes.
    allows_several: bool = False
    # The prompt has opened the reasoning, so the output first ends it.
    in_reasoning: bool = False
    # The framing texts that are control tokens of the vocabulary, with their ids.
    control: tuple[tuple[str, int], ...] = ()
    # The output may be content that matches this.
    content: ConstraintSpec | None = None

    @property
    def path(self) -> str:
        """The field of the request that the constraint comes from."""
        return "chat.tools_json"

    def rules(self, limits: TextLimits) -> str:
        """The rules of a grammar in the library's notation. Raises FieldInvalid if a schema cannot be enforced."""
        return "\n".join(self._rules(limits)) + "\n"

    def _rules(self, limits: TextLimits) -> Iterator[str]:
        form = self.dialect.forms[0]
        calls = " | ".join(f"call_{n}" for n in range(len(self.functions)))
        yield f"start: {'thought ' if self.in_reasoning else ''}output"
        if self.content is None:
            yield f"output: {self._sequence(form)}"
        else:
            yield f"output: {self._sequence(form)} | content"
            yield f"content: %lark {{\n{write_grammar(self.content, limits)}}}"
        yield f"call: {calls}"
        if self.in_reasoning:
            yield from self._thought()
        for n, function in enumerate(self.functions):
            schema = _checked_schema(function, limits)
            members = None if self.content is None or form.begin else _members(form)
            if members is not None:
                yield f"call_{n}: {_json_call(members, _readable(function), schema)}"
                continue
            head = self._framing(form.head.replace("$name", _readable(function)))
            tail = self._framing(form.tails[0]) if form.tails else ""
            yield f"call_{n}: {head} arguments_{n} {tail}"
            yield from self._arguments(f"arguments_{n}", schema, form, function)

    def _arguments(self, name: str, schema: Schema, form: CallForm, function: Function) -> Iterator[str]:
        refuse = Refusals(function.path, self.dialect.name, function.is_strict)
        if form.parameters:
            yield from parameter_rules(name, schema, form.parameters, refuse)
        elif form.notation:
            yield from notation_rules(name, schema, form.notation, dict(self.control), refuse)
        else:
            yield f"{name}: {json_rule(schema)}"

    def _sequence(self, form: CallForm) -> str:
        """One call or several, with what is around them."""
        begin = f"{self._literal(form.begin.text)} " if form.begin else ""
        begin += self._framing(form.opening)
        end = self._framing(form.end)
        if not self.allows_several:
            return f"{begin} call {end}"
        if form.between is not None:
            return f"{begin} call ({self._framing(form.between)} call)* {end}"
        line_break = '"\\n"?' if form.after_end else ""
        return f"{begin} call {end} ({line_break} {begin} call {end})*"

    def _thought(self) -> Iterator[str]:
        assert self.dialect.reasoning is not None  # narrows
        end = self.dialect.reasoning.end
        token = dict(self.control).get(end.text)
        if token is None:
            yield f"thought: reasoning (/\\n{{1,{end.after}}}/)?"
            yield f"reasoning[suffix={json.dumps(end.text)}]: /(?s:.*)/"
        else:
            yield f"thought: /(?s:.*)/ <[{token}]>"

    def _literal(self, text: str) -> str:
        """A text as terminals: control tokens, and texts between them."""
        return " ".join(
            (json.dumps(part) if part else "") if token is None else f"<[{token}]>"
            for part, token in _cut(text, dict(self.control))
        )

    def _framing(self, pattern: str) -> str:
        """A pattern as terminals: control tokens, and regular expressions between them."""
        terminals: list[str] = []
        for text, token in _cut(pattern, dict(self.control)):
            if token is not None:
                terminals.append(f"<[{token}]>")
            elif text == BLANK:
                terminals.append("(/[ \\n]{1,2}/)?")
            elif text:
                terminals.append(f"/{self._regex(text)}/")
        return " ".join(terminals)

    def _regex(self, pattern: str) -> str:
        quoted = _SPACES.join(map(quote_for_regex, pattern.split(BLANK)))
        quoted = quoted.replace(quote_for_regex("$index"), "[0-9]{1,3}")
        return quoted.replace(quote_for_regex("$id"), self.dialect.ids.written)


def _members(form: CallForm) -> dict[str, object] | None:
    """The members of a call that is one JSON object; the arguments are null. None: it is something else."""
    try:
        return json.loads(f"{form.head}null{form.tails[0] if form.tails else ''}")  # type: ignore[no-any-return]
    except ValueError:
        return None


def _json_call(members: dict[str, object], name: str, schema: Schema) -> str:
    """The call as a JSON Schema. Content may begin with the same text, and the library follows both only as JSON."""
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    schema = {key: value for key, value in schema.items() if key != "$defs"}
    values = {
        key: {"const": value.replace("$name", name)} if isinstance(value, str) else schema
        for key, value in members.items()
    }
    call = {"type": "object", "properties": values, "required": list(values), "additionalProperties": False}
    return json_rule({**call, **definitions}, spaces=_SPACES_OF_CALL)


def _cut(pattern: str, control: dict[str, int]) -> Iterator[tuple[str, int | None]]:
    """The pattern cut at control tokens: each part with the id of its token, if it is one."""
    at = 0
    while at < len(pattern):
        found = [(pattern.find(text, at), text) for text in control if text in pattern[at:]]
        if not found:
            break
        start, text = min(found)
        yield pattern[at:start], None
        yield text, control[text]
        at = start + len(text)
    yield pattern[at:], None


def _readable(function: Function) -> str:
    """The name. Raises FieldInvalid if the dialect cannot write it so that it can be parsed."""
    if not is_name(function.name):
        where = function.path.removesuffix("parameters") + "name"
        raise FieldInvalid(where, f"expected 1 to {MAX_NAME_BYTES} bytes without blanks, quotes and brackets")
    return function.name


def _checked_schema(function: Function, limits: TextLimits) -> Schema:
    schema = check_json_schema(function.schema, function.path, limits, is_strict=function.is_strict)
    if schema.setdefault("type", "object") != "object":
        raise FieldInvalid(function.path, "expected a schema of type object")
    return schema
