"""Rules that force parameters with values as plain text to match their schemas, as far as text can."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps

from imp_service.text.channels.alternatives import LENGTHS, branches_of, constants_of, has_constants
from imp_service.text.channels.dialect import Parameters
from imp_service.text.channels.pattern import is_name
from imp_service.text.channels.refusals import Refusals
from imp_service.text.channels.schema_types import ALL, types_of
from imp_service.text.channels.typed_value import TypedValue
from imp_service.text.constraints.grammar import json_rule
from imp_service.text.constraints.grammar_checks import quote_for_regex
from imp_service.text.constraints.schema_core import Schema

_OF_ROOT = frozenset({"type", "properties", "required", "additionalProperties", "$defs"})
_OF_STRINGS = LENGTHS | {"type"}
# Regular expressions of values of simple types, for schemas that also allow strings.
_SIMPLE = {
    "null": "null",
    "boolean": "true|false",
    "integer": "-?(0|[1-9][0-9]{0,14})",
    "number": "-?(0|[1-9][0-9]{0,14})",
}


def parameter_rules(name: str, schema: Schema, written: Parameters, refuse: Refusals) -> Iterator[str]:
    """Rules for the arguments of one function: the declared parameters in order; only optional ones may be missing."""
    return _Writer(schema, written, refuse).rules(name)


class _Writer:
    def __init__(self, root: Schema, written: Parameters, refuse: Refusals) -> None:
        self._root, self._written, self._refuse = root, written, refuse

    def rules(self, name: str) -> Iterator[str]:
        properties, required = self._root.get("properties", {}), self._root.get("required", [])
        assert isinstance(properties, dict) and isinstance(required, list)  # checked before
        unfit = [each for each in self._root if each not in _OF_ROOT] + [
            each for each in required if each not in properties
        ]
        if unfit:
            self._refuse.check("#", f"{unfit[0][:64]!r}")
        parameters = [f"{name}_{n}" + ("" if key in required else "?") for n, key in enumerate(properties)]
        close = self._terminal(self._written.close.replace(" ", "\n"))
        yield f"{name}: {' '.join(parameters)} {close}"
        for n, (key, value) in enumerate(properties.items()):
            if not is_name(key):
                raise self._refuse.error(_place(key), "its name")
            begin = self._written.begin.replace(" ", "\n").replace("$key", key) + "\n" * self._written.after_begin
            yield f"{name}_{n}: {self._terminal(begin)} {name}_{n}_value"
            yield from self._value(f"{name}_{n}_value", key, value)

    def _value(self, name: str, key: str, schema: object) -> Iterator[str]:
        """A value and the marker after it."""
        end = "\n" * self._written.end.before + self._written.end.text
        types = types_of(schema, self._root)
        fields = schema if isinstance(schema, dict) else {}
        if "string" not in types or not fields:
            yield f"{name}: {name}_json {self._terminal(end)}"
            yield f"{name}_json: {json_rule({**self._definitions(), **(fields or {'type': sorted(ALL - {'string'})})})}"
            return
        texts = "|".join(self._texts(key, fields))
        marker = quote_for_regex(self._written.end.text)
        yield f"{name}: {name.upper()}"
        yield f"{name.upper()}: (/{texts}/ & ~/(?s:.*{marker}.*)/) {self._terminal(end)}"

    def _texts(self, key: str, schema: Schema) -> Iterator[str]:
        """Regular expressions of the texts that the parser converts to valid values of a schema that allows strings."""
        for branch in branches_of(schema):
            if has_constants(branch):
                yield self._constants(key, branch, schema)
                continue
            kind = branch.get("type")
            extra = branch.keys() - (_OF_STRINGS if kind == "string" else {"type"})
            if extra or not isinstance(kind, str) or (kind != "string" and kind not in _SIMPLE):
                self._refuse.check(_place(key), f"{(sorted(extra) or [str(kind)])[0][:64]!r}")
            if not isinstance(kind, str) or kind not in ("string", *_SIMPLE):
                yield "(?s:.*)"
                continue
            lengths = f"{branch.get('minLength', 0)},{branch.get('maxLength', '')}"
            yield f"(?s:.{{{lengths}}})" if kind == "string" else f"({_SIMPLE[kind]})"

    def _constants(self, key: str, branch: Schema, schema: Schema) -> str:
        texts, types = list[str](), types_of(schema, self._root)
        for value in constants_of(branch):
            text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
            parser = TypedValue(types)
            # A string that the parser would take for a number or a literal cannot be written.
            if parser.feed(text.encode()) + parser.finish() != dumps(value, ensure_ascii=False):
                self._refuse.check(_place(key), "'enum'")
                continue
            texts.append(quote_for_regex(text))
        if not texts:
            self._refuse.check(_place(key), "'enum'")
            return "(?s:.*)"
        return f"({'|'.join(texts)})"

    def _definitions(self) -> Schema:
        return {"$defs": self._root["$defs"]} if "$defs" in self._root else {}

    def _terminal(self, text: str) -> str:
        return dumps(text, ensure_ascii=False) if text else ""


def _place(key: str) -> str:
    return f"#/properties/{key[:64]}"
