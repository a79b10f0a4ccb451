"""The JSON types that a schema allows, to convert values that a model wrote as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from imp_service.text.channels.tools import Schema

ALL = frozenset({"object", "array", "string", "number", "boolean", "null"})
STRING = frozenset({"string"})
# The longest chain of references that is followed.
_MOST_STEPS = 16


def types_of_parameter(schema: object, name: str) -> frozenset[str]:
    """The types of a function's parameter. A parameter that the schema does not declare is a string."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping) or name not in properties:
        return STRING
    return types_of(properties[name], schema)


def types_of(schema: object, root: Schema, n_steps: int = _MOST_STEPS) -> frozenset[str]:
    """The types that a schema allows; an integer is a number."""
    types = _types_of(schema, root, n_steps)
    return types | {"null"} if isinstance(schema, Mapping) and schema.get("nullable") is True else types


def _types_of(schema: object, root: Schema, n_steps: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or not n_steps:
        return ALL
    named = schema.get("type")
    if named is not None:
        names = named if isinstance(named, list) else [named]
        return frozenset("number" if name == "integer" else str(name) for name in names) & ALL
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return frozenset(map(type_of, values if isinstance(values, list) else []))
    if "$ref" in schema:
        return types_of(_target(schema["$ref"], root), root, n_steps - 1)
    for keyword, together in (
        ("anyOf", frozenset.union),
        ("oneOf", frozenset.union),
        ("allOf", frozenset.intersection),
    ):
        parts = schema.get(keyword)
        if isinstance(parts, list) and parts:
            return together(*(types_of(part, root, n_steps - 1) for part in parts))
    return ALL


def type_of(value: object) -> str:
    """The type of a value of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list) else "number"


def _target(reference: object, root: Schema) -> object:
    parts: Iterable[str] = str(reference).split("/")[1:]
    target: object = root
    for part in parts:
        target = (
            target.get(unquote(part).replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        )
    return target
