"""Rules that force arguments in a model's own notation to match their schemas, as far as rules can."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from json import dumps

from imp_service.text.channels.alternatives import (
    KEYWORDS_OF,
    LIMITS,
    branches_of,
    constants_of,
    has_constants,
)
from imp_service.text.channels.notation import JSON_LITERALS, Notation
from imp_service.text.channels.refusals import Refusals
from imp_service.text.channels.schema_types import types_of
from imp_service.text.constraints.grammar import json_rule
from imp_service.text.constraints.grammar_checks import quote_for_regex
from imp_service.text.constraints.schema_core import Schema

# Numbers without limits are shorter than the parser allows.
_DIGITS = "-?(0|[1-9][0-9]{0,14})"
_UNLIMITED = {"integer": f"/{_DIGITS}/", "number": rf"/{_DIGITS}(\.[0-9]{{1,16}})?([eE][+-]?[0-9]{{1,2}})?/"}
_ANY = ("string", "number", "boolean", "null")
_OF_ROOT = {"$defs"}
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PYTHON_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A character of a Python string.
_PYTHON_CHARACTER = r'([^"\\\x00-\x1F\x7F]|\\["\\nrt])'


def notation_rules(
    name: str, schema: Schema, notation: Notation, control: Mapping[str, int], refuse: Refusals
) -> Iterator[str]:
    """Rules for the arguments of one function: the declared parameters in order; only optional ones may be missing.

    `control`: the control tokens of the vocabulary with their ids.
    """
    return iter(_Writer(name, schema, notation, control, refuse).rules())


class _Writer:
    def __init__(
        self, name: str, root: Schema, notation: Notation, control: Mapping[str, int], refuse: Refusals
    ) -> None:
        self._name, self._root, self._notation = name, root, notation
        self._control, self._refuse = control, refuse
        self._rules: list[str] = []
        self._n_rules = 0
        # The rule of each schema that a reference names.
        self._of_reference: dict[str, str] = {}

    def rules(self) -> list[str]:
        pairs = self._pairs(self._root, "#", is_inner=False)
        self._rules.append(f"{self._name}: {pairs} {dumps(self._notation.close)}")
        return self._rules

    def _rule(self, body: str) -> str:
        self._n_rules += 1
        name = f"{self._name}_{self._n_rules}"
        self._rules.append(f"{name}: {body}")
        return name

    def _value(self, schema: object, pointer: str) -> str:
        """The name of a rule for one value."""
        if not isinstance(schema, dict):
            if schema is False:
                self._refuse.check(pointer, "'false'")
            schema = {}
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]), pointer)
        if "oneOf" in schema:
            self._check_distinct(schema["oneOf"], pointer)
        return self._rule(" | ".join(self._kind(branch, pointer) for branch in branches_of(schema)))

    def _referenced(self, reference: str, pointer: str) -> str:
        name = self._of_reference.get(reference)
        if name is None:
            self._n_rules += 1
            name = self._of_reference[reference] = f"{self._name}_{self._n_rules}"
            target: object = self._root
            for part in reference.split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, dict) or key not in target:
                    raise self._refuse.error(pointer, "'$ref'")
                target = target[key]
            self._rules.append(f"{name}: {self._value(target, reference)}")
        return name

    def _check_distinct(self, parts: object, pointer: str) -> None:
        """A value that two schemas of oneOf allow would not be valid."""
        types = [types_of(part, self._root) for part in parts] if isinstance(parts, list) else []
        if sum(map(len, types)) != len(frozenset[str]().union(*types)):
            self._refuse.check(pointer, "'oneOf'")

    def _kind(self, schema: Schema, pointer: str) -> str:
        """A value of a schema that has one type at most."""
        if has_constants(schema):
            return self._constants(schema, pointer)
        if "$ref" in schema or "anyOf" in schema or "oneOf" in schema or isinstance(schema.get("type"), list):
            if schema.keys() - {"$ref", "anyOf", "oneOf", "type"} or len(schema.keys()) > 1:
                self._refuse.check(pointer, "'anyOf'")
                schema = next({name: schema[name]} for name in ("$ref", "anyOf", "oneOf", "type") if name in schema)
            return self._value(schema, pointer)
        kind = schema.get("type")
        if kind is None and schema.keys() - _OF_ROOT:
            self._refuse.check(pointer, "'None'")
        if not isinstance(kind, str) or kind not in KEYWORDS_OF:
            return self._any(pointer)
        return self._of_type(kind, schema, pointer)

    def _any(self, pointer: str) -> str:
        return " | ".join(self._of_type(each, {}, pointer) for each in _ANY)

    def _of_type(self, kind: str, schema: Schema, pointer: str) -> str:
        unfit = sorted(schema.keys() - _OF_ROOT - {"type"} - KEYWORDS_OF[kind])
        if unfit:
            self._refuse.check(pointer, f"{unfit[0][:64]!r}")
        if kind == "object":
            return f'"{{" {self._pairs(schema, pointer, is_inner=True)} "}}"'
        if kind == "array":
            return self._list(schema, pointer)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            limits = {key: value for key, value in schema.items() if key in LIMITS}
            if not limits:
                return _UNLIMITED[kind]
            return self._rule(json_rule({"type": kind, **limits}))
        true, false, null = self._notation.literals
        return f'("{true}" | "{false}")' if kind == "boolean" else f'"{null}"'

    def _pairs(self, schema: Schema, pointer: str, *, is_inner: bool) -> str:
        """The pairs of an object, without its braces."""
        properties, required = schema.get("properties", {}), schema.get("required", [])
        assert isinstance(properties, dict) and isinstance(required, list)  # checked before
        extra = sorted(schema.keys() - _OF_ROOT - {"type"} - KEYWORDS_OF["object"])
        unfit = [*extra, *(each for each in required if each not in properties)]
        if unfit:
            self._refuse.check(pointer, f"{unfit[0][:64]!r}")
        # The pairs from here on, if none was written before, and if one was.
        first = rest = '""'
        for key, value in reversed(properties.items()):
            inner = f"{pointer}/properties/{key[:64]}"
            pair = f"{dumps(self._key(key, inner, is_inner=is_inner), ensure_ascii=False)} {self._value(value, inner)}"
            is_optional = key not in required
            first = self._rule(f"{pair} {rest}" + (f" | {first}" if is_optional else ""))
            rest = self._rule(f'"," {pair} {rest}' + (f" | {rest}" if is_optional else ""))
        return first

    def _key(self, key: str, pointer: str, *, is_inner: bool) -> str:
        """A key with the sign after it."""
        python = self._notation.is_python
        if python and is_inner:
            return dumps(key, ensure_ascii=False) + ":"
        if not (_PYTHON_KEY if python else _BARE_KEY).fullmatch(key):
            raise self._refuse.error(pointer, "its name")
        return key + (":" if is_inner else self._notation.sign)

    def _list(self, schema: Schema, pointer: str) -> str:
        least, most = int(str(schema.get("minItems", 0))), schema.get("maxItems")
        if most == 0:
            return '"[" "]"'
        item = self._value(schema.get("items", {}), f"{pointer}/items")
        upper = "" if most is None else str(int(str(most)) - 1)
        items = f'{item} ("," {item}){{{max(least - 1, 0)},{upper}}}'
        return f'"[" {items} "]"' if least else f'"[" ({items})? "]"'

    def _string(self, schema: Schema) -> str:
        repeat = f"{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}"
        if self._notation.is_python:
            return f'/"{_PYTHON_CHARACTER}{repeat}"/'
        quote = self._notation.quotes[0]
        token = self._control.get(quote)
        if token is not None:
            return f"<[{token}]> /(?s:.{repeat})/ <[{token}]>"
        self._n_rules += 1
        name = f"{self._name}_{self._n_rules}".upper()
        self._rules.append(f"{name}: (/(?s:.{repeat})/ & ~/(?s:.*{quote_for_regex(quote)}.*)/) {dumps(quote)}")
        return f"{dumps(quote)} {name}"

    def _constants(self, schema: Schema, pointer: str) -> str:
        allowed = [each for each in constants_of(schema) if self._can_be_written(each, pointer)]
        if not allowed:
            self._refuse.check(pointer, "'enum'")
            return self._any(pointer)
        return "(" + " | ".join(map(self._constant, allowed)) + ")"

    def _can_be_written(self, value: object, pointer: str) -> bool:
        if isinstance(value, (dict, list)):
            self._refuse.check(pointer, "'enum' of arrays and objects")
            return False
        if isinstance(value, str) and not self._notation.is_python and self._notation.quotes[0] in value:
            self._refuse.check(pointer, "'enum'")
            return False
        return True

    def _constant(self, value: object) -> str:
        """One value as terminals."""
        if isinstance(value, str) and not self._notation.is_python:
            quote = self._notation.quotes[0]
            token = self._control.get(quote)
            mark = dumps(quote) if token is None else f"<[{token}]>"
            return f"{mark} {dumps(value, ensure_ascii=False)} {mark}" if value else f"{mark} {mark}"
        text = dumps(value, ensure_ascii=False)
        literals = dict(zip(JSON_LITERALS, self._notation.literals, strict=True))
        return dumps(literals.get(text, text), ensure_ascii=False)
