"""Checks a JSON Schema of a caller: every keyword must be enforceable, and every schema must have a finite value.

If the caller did not ask for a strict schema, keywords that cannot be enforced are hints, which constrain nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Set
from urllib.parse import unquote

from imp_service.text.constraints.grammar_checks import find_nonproductive
from imp_service.text.constraints.schema_core import (
    LISTS,
    MAPS,
    ONE,
    VALUES,
    Schema,
    core_of,
    first_items,
    is_annotation,
    looks_around,
    other_items,
)
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits
from imp_service.text.strict_json import parse_strict_json


def _allows_strings(schema: object) -> bool:
    """Whether a schema of names, which are strings, allows all of them."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return False
    rest = {keyword for keyword in schema if not is_annotation(keyword)}
    return not rest or (rest == {"type"} and "string" in _types(schema))


# Keywords that restrict and cannot be enforced, each with a test whether its value allows everything.
_UNENFORCED: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("not", "if", "contains", "maxContains", "$dynamicRef", "$recursiveRef"), lambda _: False),
    **dict.fromkeys(("then", "else", "minContains"), lambda _: True),  # part of `if` and `contains`
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), lambda value: value == {}),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), lambda value: value is True or value == {}),
    "uniqueItems": lambda value: value is False,
    "propertyNames": _allows_strings,
}
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def check_json_schema(source: str, path: str, limits: TextLimits, *, is_strict: bool = True) -> Schema:
    """The part of the schema that is enforced. Raises `FieldInvalid` if it is wrong, or strict and not all of it is."""
    if not source.strip():
        raise FieldInvalid(path, "empty")
    root = parse_strict_json(source, path, max_bytes=limits.constraint_bytes, max_depth=limits.nesting)
    if root is True:
        return {}
    if not isinstance(root, dict):
        raise FieldInvalid(path, f"expected an object, found {json.dumps(root)[:32]}")
    checker = _SchemaChecker(root, path, is_strict=is_strict)
    checker.check()
    return core_of(root, checker.targets, is_strict=is_strict)


def parts_of(source: str, *, is_strict: bool) -> list[tuple[str, Schema]]:
    """What is enforced of each schema within a checked schema, with its pointer, parents first."""
    root = json.loads(source)
    if not isinstance(root, dict):
        return []
    checker = _SchemaChecker(root, "", is_strict=is_strict)
    checker.check()
    return [(pointer, core_of(each, checker.targets, is_strict=is_strict)) for pointer, each in checker.schemas]


def hints_of(source: str) -> list[str]:
    """The pointers of a schema's keywords that are hints unless it is strict. Empty if it is not a schema."""
    try:
        root = json.loads(source)
        schemas = _SchemaChecker(root, "", is_strict=False).schemas if isinstance(root, dict) else []
    except (ValueError, RecursionError, FieldInvalid):
        return []
    return [f"#{pointer}/{_escape(keyword)}" for pointer, schema in schemas for keyword in _unenforced(schema)]


def _unenforced(schema: Schema) -> Iterator[str]:
    """The keywords of a schema that restrict and cannot be enforced."""
    for keyword, value in schema.items():
        if keyword in VALUES or keyword in ONE or keyword in LISTS or keyword in MAPS or is_annotation(keyword):
            continue
        allows_all = _UNENFORCED.get(keyword)
        if allows_all is None or not allows_all(value):
            yield keyword
    if looks_around(schema.get("pattern")):
        yield "pattern"


class _SchemaChecker:
    def __init__(self, root: Schema, path: str, *, is_strict: bool) -> None:
        self._root = root
        self._path = path
        self._is_strict = is_strict
        # Schemas in a part that has an identifier of its own, by which its references would be resolved.
        self._in_resource = set[int]()
        # What each schema with a reference refers to.
        self.targets: dict[int, object] = {}
        # Pointer and schema, parents first.
        self.schemas = list(self._walk())
        self._known = {id(schema) for _, schema in self.schemas}

    def check(self) -> None:
        for pointer, schema in self.schemas:
            self._check_keywords(pointer, schema)
            self._check_values(pointer, schema)
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
            begins = bool(pointer) and not str(schema.get("$id", "#")).startswith("#")
            for keyword, value in schema.items():
                children = self._children(f"{pointer}/{_escape(keyword)}", keyword, value)
                if begins or id(schema) in self._in_resource:
                    self._in_resource.update(id(child) for _, child in children)
                waiting += children
            if begins:
                self._in_resource.add(id(schema))

    def _children(self, pointer: str, keyword: str, value: object) -> list[tuple[str, object]]:
        if keyword in ONE and not (keyword == "items" and isinstance(value, list)):
            return [(pointer, value)]
        if keyword in LISTS or keyword == "items":
            if not isinstance(value, list) or (not value and keyword in LISTS):
                raise self._fail(pointer, "expected a list of schemas")
            return [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
        if keyword in MAPS:
            if not isinstance(value, dict):
                raise self._fail(pointer, "expected a mapping to schemas")
            return [(f"{pointer}/{_escape(name)}", item) for name, item in value.items()]
        return []

    def _check_keywords(self, pointer: str, schema: Schema) -> None:
        """Refuses keywords that cannot be enforced, if they are not hints."""
        for keyword in _unenforced(schema) if self._is_strict else ():
            if keyword == "pattern":
                raise self._fail(f"{pointer}/pattern", "look-around and back-references are not supported")
            raise self._fail(pointer, f"keyword {keyword[:64]!r} is not supported")

    def _check_values(self, pointer: str, schema: Schema) -> None:
        for name in _types(schema):
            if name not in _TYPES:
                raise self._fail(f"{pointer}/type", f"unknown type {name!r}")
        if "$ref" in schema:
            if id(schema) in self._in_resource:
                raise self._fail(
                    f"{pointer}/$ref", "a reference inside a schema with a $id of its own is not supported"
                )
            target = self.targets[id(schema)] = self._resolve(f"{pointer}/$ref", schema["$ref"])
            if not isinstance(target, bool) and id(target) not in self._known:
                raise self._fail(f"{pointer}/$ref", "the reference does not lead to a schema")
        for name in _COUNTS:
            count = schema.get(name, 0)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise self._fail(f"{pointer}/{name}", f"expected a number from 0, found {json.dumps(count)[:32]}")
        if not isinstance(schema.get("nullable", False), bool):
            raise self._fail(f"{pointer}/nullable", "expected true or false")
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
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise self._fail(pointer, f"reference {reference[:64]!r} leads nowhere")
        return target

    def _check_endings(self) -> None:
        pointers = {id(schema): pointer for pointer, schema in self.schemas}
        schemas = {id(schema): schema for _, schema in self.schemas}
        needs = {key: {id(part) for part in self._parts(schema)} & schemas.keys() for key, schema in schemas.items()}
        nonproductive = find_nonproductive(needs, lambda key, finite: self._ends(schemas[key], finite))
        for key in nonproductive:
            raise self._fail(pointers[key], "refers to itself without an end: no finite value satisfies it")

    def _parts(self, schema: Schema) -> Iterator[object]:
        """Other schemas that the existence of a finite value may depend on."""
        if "$ref" in schema:
            yield self.targets[id(schema)]
        for keyword in ("anyOf", "oneOf", "allOf"):
            yield from _list(schema.get(keyword))
        yield from first_items(schema)
        yield other_items(schema)
        yield schema.get("additionalProperties")
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        yield from properties.values()

    def _ends(self, schema: Schema, finite: Set[int]) -> bool:
        def known(value: object) -> bool:
            return isinstance(value, bool) or id(value) in finite

        if schema.get("nullable") is True:
            return True
        if "$ref" in schema and not known(self.targets[id(schema)]):
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
    first = first_items(schema)
    if not isinstance(n_needed, int) or n_needed <= 0:
        return True
    return all(known(item) for item in first[:n_needed]) and (n_needed <= len(first) or known(other_items(schema)))


def _types(schema: Schema) -> list[object]:
    names = schema.get("type", [])
    return names if isinstance(names, list) else [names]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _escape(name: str) -> str:
    """A name in a JSON pointer, cut if long, since messages contain pointers."""
    return name[:64].replace("~", "~0").replace("/", "~1")
