"""The alternatives of a schema: its constants, the schemas that it combines, and its types."""

from __future__ import annotations

from collections.abc import Iterator

from imp_service.text.channels.schema_types import types_of
from imp_service.text.constraints.schema_core import Schema

LENGTHS = frozenset({"minLength", "maxLength"})
LIMITS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
# The keywords that apply to values of each type.
KEYWORDS_OF: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": LENGTHS,
    "integer": LIMITS,
    "number": LIMITS,
    "boolean": frozenset(),
    "null": frozenset(),
}


def branches_of(schema: Schema) -> Iterator[Schema]:
    """The schemas of anyOf or oneOf, or one for each type with the keywords that apply to it.

    Constants stay together, because they need not have every type that the schema names.
    """
    types = schema.get("type")
    for keyword in ("anyOf", "oneOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list) and not schema.keys() - {keyword}:
            yield from (part if isinstance(part, dict) else {"anyOf": []} for part in parts)
            return
    if has_constants(schema) or not isinstance(types, list):
        yield schema
        return
    of_types = frozenset[str]().union(*(KEYWORDS_OF.get(kind, frozenset()) for kind in types))
    for kind in types:
        others = of_types - KEYWORDS_OF.get(kind, frozenset())
        yield {name: value for name, value in schema.items() if name not in others} | {"type": kind}


def has_constants(schema: Schema) -> bool:
    """Returns whether the schema lists its values."""
    return "enum" in schema or "const" in schema


def constants_of(schema: Schema) -> list[object]:
    """The values of enum or const that also have the schema's type and length.

    Returns none if the schema has another keyword, because the values are not checked against it.
    """
    values = schema.get("enum", [schema.get("const")])
    if schema.keys() - LENGTHS - {"enum", "const", "type"} or {"enum", "const"} <= schema.keys():
        return []
    assert isinstance(values, list)  # checked before
    kind = schema.get("type")
    names = kind if isinstance(kind, list) else [kind]
    is_integer = "integer" in names and "number" not in names
    least, most = int(str(schema.get("minLength", 0))), schema.get("maxLength")
    return [
        each
        for each in values
        if (kind is None or types_of({"const": each}, {}) <= types_of(schema, {}))
        and not (is_integer and isinstance(each, float))
        and not (isinstance(each, str) and (len(each) < least or (most is not None and len(each) > int(str(most)))))
    ]
