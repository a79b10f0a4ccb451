"""Checks a JSON Schema of a caller: every keyword must be enforceable, and every schema must have a finite value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Set

from imp_service.text.constraints.grammar_checks import find_nonproductive
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits
from imp_service.text.strict_json import parse_strict_json

Schema = dict[str, object]

# Keywords that say nothing about what is valid.
ANNOTATIONS = frozenset(
    {"$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
_VALUES = frozenset(
    {
        *("type", "const", "enum", "format", "pattern", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "required", "$ref"),
    }
)
# Keywords whose value is a schema, a list of schemas, a mapping to schemas.
_ONE = frozenset({"items", "additionalProperties"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
KEYWORDS = ANNOTATIONS | _VALUES | _ONE | _LISTS | _MAPS
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def check_json_schema(source: str, path: str, limits: TextLimits) -> Schema:
    """The parsed schema. Raises `FieldInvalid` for anything that cannot be enforced."""
    if not source.strip():
        raise FieldInvalid(path, "empty")
    root = parse_strict_json(source, path, max_bytes=limits.constraint_bytes, max_depth=limits.nesting)
    if root is True:
        return {}
    if not isinstance(root, dict):
        raise FieldInvalid(path, f"expected an object, found {json.dumps(root)[:32]}")
    _SchemaChecker(root, path).check()
    return root


class _SchemaChecker:
    def __init__(self, root: Schema, path: str) -> None:
        self._root = root
        self._path = path
        # Pointer and schema, parents first.
        self._schemas = list(self._walk())
        self._known = {id(schema) for _, schema in self._schemas}

    def check(self) -> None:
        for pointer, schema in self._schemas:
            self._check_keywords(pointer, schema)
        self._check_endings()

    def _fail(self, pointer: str, message: str) -> FieldInvalid:
        return FieldInvalid(self._path, f"at #{pointer}: {message}")

    def _walk(self) -> Iterator[tuple[str, Schema]]:
        waiting: list[tuple[str, object]] = [("", self._root)]
        while waiting:
            pointer, schema = waiting.pop()
            if isinstance(schema, bool):
                continue
            if not isinstance(schema, dict):
                raise self._fail(pointer, f"expected a schema, found {type(schema).__name__}")
            yield pointer, schema
            for keyword, value in schema.items():
                waiting += self._children(f"{pointer}/{_escape(keyword)}", keyword, value)

    def _children(self, pointer: str, keyword: str, value: object) -> list[tuple[str, object]]:
        if keyword in _ONE:
            return [(pointer, value)]
        if keyword in _LISTS:
            if not isinstance(value, list) or not value:
                raise self._fail(pointer, "expected a list of schemas")
            return [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
        if keyword in _MAPS:
            if not isinstance(value, dict):
                raise self._fail(pointer, "expected a mapping to schemas")
            return [(f"{pointer}/{_escape(name)}", item) for name, item in value.items()]
        return []

    def _check_keywords(self, pointer: str, schema: Schema) -> None:
        for keyword in schema:
            # The identifier of the whole schema is an annotation; deeper ones would change what references mean.
            if keyword not in KEYWORDS and not (keyword == "$id" and not pointer):
                raise self._fail(pointer, f"keyword {keyword[:64]!r} is not supported")
        for name in _types(schema):
            if name not in _TYPES:
                raise self._fail(f"{pointer}/type", f"unknown type {name!r}")
        if "$ref" in schema:
            target = self._resolve(f"{pointer}/$ref", schema["$ref"])
            if not isinstance(target, bool) and id(target) not in self._known:
                raise self._fail(f"{pointer}/$ref", "the reference does not lead to a schema")
        for name in _COUNTS:
            count = schema.get(name, 0)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise self._fail(f"{pointer}/{name}", f"expected a number from 0, found {json.dumps(count)[:32]}")
        if not isinstance(schema.get("enum", []), list):
            raise self._fail(f"{pointer}/enum", "expected a list of values")
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise self._fail(f"{pointer}/required", "expected a list of names")

    def _resolve(self, pointer: str, reference: object) -> object:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise self._fail(
                pointer, f"reference {str(reference)[:64]!r}: only parts of this schema may be referred to"
            )
        target: object = self._root
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise self._fail(pointer, f"reference {reference[:64]!r} leads nowhere")
        return target

    def _check_endings(self) -> None:
        pointers = {id(schema): pointer for pointer, schema in self._schemas}
        schemas = {id(schema): schema for _, schema in self._schemas}
        needs = {key: {id(part) for part in self._parts(schema)} & schemas.keys() for key, schema in schemas.items()}
        nonproductive = find_nonproductive(needs, lambda key, finite: self._ends(schemas[key], finite))
        for key in nonproductive:
            raise self._fail(pointers[key], "refers to itself without an end: no finite value satisfies it")

    def _parts(self, schema: Schema) -> Iterator[object]:
        """Other schemas that the existence of a finite value may depend on."""
        if "$ref" in schema:
            yield self._resolve("", schema["$ref"])
        for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            yield from _list(schema.get(keyword))
        yield schema.get("items")
        yield schema.get("additionalProperties")
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        yield from properties.values()

    def _ends(self, schema: Schema, finite: Set[int]) -> bool:
        def known(value: object) -> bool:
            return isinstance(value, bool) or id(value) in finite

        if "$ref" in schema and not known(self._resolve("", schema["$ref"])):
            return False
        for keyword, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            if not enough(known(item) for item in _list(schema.get(keyword, [True]))):
                return False
        types = set(_types(schema)) or _TYPES
        if types - {"object", "array"}:
            return True
        return ("object" in types and _object_ends(schema, known)) or ("array" in types and _array_ends(schema, known))


def _object_ends(schema: Schema, known: Callable[[object], bool]) -> bool:
    properties = schema.get("properties", {})
    assert isinstance(properties, dict)
    others = schema.get("additionalProperties", True)
    return all(known(properties.get(name, others)) for name in _list(schema.get("required", [])))


def _array_ends(schema: Schema, known: Callable[[object], bool]) -> bool:
    n_needed = schema.get("minItems", 0)
    first = _list(schema.get("prefixItems", []))
    if not isinstance(n_needed, int) or n_needed <= 0:
        return True
    return all(known(item) for item in first[:n_needed]) and (
        n_needed <= len(first) or known(schema.get("items", True))
    )


def _types(schema: Schema) -> list[object]:
    names = schema.get("type", [])
    return names if isinstance(names, list) else [names]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _escape(name: str) -> str:
    """A name in a JSON pointer, cut if long, since messages contain pointers."""
    return name[:64].replace("~", "~0").replace("/", "~1")
