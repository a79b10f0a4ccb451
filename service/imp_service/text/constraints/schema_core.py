"""Writes the part of a JSON Schema that the library enforces, in the keywords of draft 2020-12.

Annotations and hints are left out. Tuples and limits of older drafts, and `nullable` of OpenAPI, become keywords that
the library has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Schema = dict[str, object]

# Keywords that say nothing about what is valid.
ANNOTATIONS = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$vocabulary", "$comment", "title", "description"),
        *("default", "examples", "example", "deprecated", "readOnly", "writeOnly", "discriminator", "externalDocs"),
        *("xml", "contentEncoding", "contentMediaType", "contentSchema"),
    }
)
VALUES = frozenset(
    {
        *("type", "const", "enum", "format", "pattern", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "required", "$ref", "nullable"),
    }
)
# Keywords whose value is a schema, a list of schemas, a mapping to schemas.
ONE = frozenset({"items", "additionalItems", "additionalProperties"})
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
# The formats that the library enforces. Another one is an annotation.
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})
_APPLIED = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
# An escape that is no back-reference, or a class.
_CHARACTER = re.compile(r"\\[^1-9k]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\\[1-9k]")


def is_annotation(keyword: str) -> bool:
    """Whether a keyword says nothing about what is valid. OpenAPI's extensions begin with `x-`."""
    return keyword in ANNOTATIONS or keyword.startswith("x-")


def looks_around(pattern: object) -> bool:
    """Whether a regular expression has look-around or back-references, which the library does not support."""
    return isinstance(pattern, str) and _LOOKS_AROUND.search(_CHARACTER.sub(".", pattern)) is not None


def first_items(schema: Schema) -> list[object]:
    """The schemas of the first items; before draft 2020-12 a list in `items`."""
    for keyword in ("prefixItems", "items"):
        found = schema.get(keyword)
        if isinstance(found, list):
            return found
    return []


def other_items(schema: Schema) -> object:
    """The schema of the items after the first."""
    found = schema.get("items", True)
    return schema.get("additionalItems", True) if isinstance(found, list) else found


def core_of(root: Schema, targets: Mapping[int, object], *, is_strict: bool) -> Schema:
    """The schema that is enforced. `targets` has what each schema with a reference refers to, by the schema's id()."""
    return _Writer(targets, is_strict=is_strict).write(root)


class _Writer:
    def __init__(self, targets: Mapping[int, object], *, is_strict: bool) -> None:
        self._targets = targets
        self._is_strict = is_strict
        self._named = {id(target): target for target in targets.values()}
        self._names = {key: f"_{n}" for n, key in enumerate(self._named)}

    def write(self, root: Schema) -> Schema:
        """The root is written in place; what references name becomes a definition."""
        written = self._schema(root)
        if self._named:
            written["$defs"] = {
                self._names[key]: self._schema(target) if isinstance(target, dict) else target
                for key, target in self._named.items()
            }
        return written

    def _value(self, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {"$ref": self._reference(value)} if id(value) in self._names else self._schema(value)

    def _reference(self, target: object) -> str:
        return f"#/$defs/{self._names[id(target)]}"

    def _schema(self, schema: Schema) -> Schema:
        written: Schema = {}
        for keyword, value in schema.items():
            if keyword == "$ref":
                written[keyword] = self._reference(self._targets[id(schema)])
            elif keyword in VALUES and _is_enforced(keyword, value):
                written[keyword] = value
            elif keyword in LISTS and isinstance(value, list):
                written[keyword] = [self._value(each) for each in value]
            elif keyword in ("properties", "patternProperties") and isinstance(value, dict):
                written[keyword] = {name: self._value(each) for name, each in value.items()}
            elif keyword == "additionalProperties":
                written[keyword] = self._value(value)
        if "items" in schema:
            written |= self._items(schema)
        _number_limits(written)
        if not self._is_strict:
            _loosen_one_of(written)
        return _nullable(written) if schema.get("nullable") is True else written

    def _items(self, schema: Schema) -> Schema:
        written: Schema = {"items": self._value(other_items(schema))}
        if isinstance(schema["items"], list):
            written["prefixItems"] = [self._value(each) for each in first_items(schema)]
        return written


def _is_enforced(keyword: str, value: object) -> bool:
    if keyword == "format":
        return value in FORMATS
    return keyword != "nullable" and not (keyword == "pattern" and looks_around(value))


def _number_limits(schema: Schema) -> None:
    """Until draft 4, and in OpenAPI 3.0, true makes the other limit exclusive."""
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool):
            is_exclusive = schema.pop(exclusive)
            if is_exclusive and limit in schema:
                schema[exclusive] = schema.pop(limit)


def _loosen_one_of(schema: Schema) -> None:
    """That only one of several schemas is valid is a hint: at least one is."""
    parts = schema.pop("oneOf", None)
    if parts is None:
        return
    if "anyOf" not in schema:
        schema["anyOf"] = parts
        return
    all_of = schema.get("allOf", [])
    assert isinstance(all_of, list)  # checked before
    schema["allOf"] = [*all_of, {"anyOf": parts}]


def _nullable(schema: Schema) -> Schema:
    """A schema that also allows null."""
    if schema.keys() & _APPLIED:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema.get("type")
    if kinds is not None:
        schema["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if isinstance(values := schema.get("enum"), list):
        schema["enum"] = [*values, None]
    return schema
