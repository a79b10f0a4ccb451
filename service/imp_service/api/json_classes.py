"""Classes that describe JSON: those of pydantic, by their methods, since imp does not need pydantic."""

from __future__ import annotations

import json
from typing import Any

from .keywords import as_json

_EXPECTED = "expected a JSON Schema as a dict or text, a class of pydantic, or a TypeAdapter of one"
# Keywords whose values are schemas or lists of them, and those whose values have schemas by name.
_SCHEMAS = {"items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"}
_NAMED_SCHEMAS = {"properties", "$defs", "definitions"}


def schema_of(value: Any) -> str:
    """A schema as JSON. That of a class has no members besides the class's, unless the class says that it has."""
    if isinstance(value, type):
        # Of pydantic 2, else of pydantic 1.
        written = getattr(value, "model_json_schema", None) or getattr(value, "schema", None)
    else:
        written = getattr(value, "json_schema", None)  # of a TypeAdapter
    if callable(written):
        return json.dumps(_closed(written()))
    if isinstance(value, type) or not isinstance(value, str | dict | bool):
        name = value.__name__ if isinstance(value, type) else type(value).__name__
        raise TypeError(f"json_schema: {name}, {_EXPECTED}")
    return as_json(value)


def _closed(schema: Any) -> Any:
    """A class's schema without further members: pydantic ignores them, so a model would write them in vain."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(each) if name in _SCHEMAS else each for name, each in schema.items()}
    for name in _NAMED_SCHEMAS & schema.keys():
        found[name] = {each: _closed(below) for each, below in schema[name].items()}
    return found if "properties" not in schema else {"additionalProperties": False, **found}


def read_json(text: str, kind: Any = None) -> Any:
    """The value of a JSON text, or an object of a class of pydantic. Raises ValueError, as pydantic's errors are."""
    if kind is None:
        return json.loads(text)
    for reader in ("model_validate_json", "validate_json", "parse_raw"):
        if callable(read := getattr(kind, reader, None)):
            return read(text)
    raise TypeError(f"parse: {getattr(kind, '__name__', type(kind).__name__)}, expected a class of pydantic")
