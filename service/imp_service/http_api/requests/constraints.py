"""The fields that constrain the output: those of imp, and the one constraint of a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.values import WrongValue, expected, flag, known_members, text, texts, within
from imp_service.text import ConstraintKind, ConstraintSpec

# Returns None if the value constrains nothing.
ReadSpec = Callable[[Any], ConstraintSpec | None]


def one_constraint(
    reading: Reading, readers: Mapping[str, ReadSpec], place_of: Callable[[str], str]
) -> ConstraintSpec | None:
    """The constraint, or None. At most one field may set one.

    `place_of`: where a field of the API has it. The fields of imp need none.
    """
    found = {name: spec for name in readers if (spec := reading.read(name, readers[name], None)) is not None}
    if len(found) > 1:
        first, second, *_ = found
        reading.wrong(second, f"set together with {first}, expected at most one constraint")
    for name, spec in found.items():
        place = name + (_own_place(reading.get(name)) if name in OWN else place_of(name))
        reading.set_by(f"{spec.path}.values", place)
        reading.set_by(spec.path, place)
        reading.ignored += [place + hint for hint in _hints(spec)]
        return spec
    return None


def inner(value: Mapping[str, Any], name: str, read: Callable[[Any], Any]) -> Any:
    """The member of a value, read."""
    return within(f".{name}", read, value.get(name))


def json_schema(value: Any) -> ConstraintSpec:
    """The constraint of a JSON Schema, also as text. What cannot be enforced is a hint."""
    if not isinstance(value, str | dict | bool):
        raise expected("a JSON Schema", value)
    source = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, source, is_strict=False)


def _own_place(value: Any) -> str:
    """The path of the constraint within a field of imp."""
    if isinstance(value, str):
        return ""
    return "." + next((each for each in STRUCTURED if value.get(each) not in (None, False)), "json")


def _hints(spec: ConstraintSpec) -> list[str]:
    if spec.kind is not ConstraintKind.JSON_SCHEMA or spec.is_strict:
        return []
    # The checks of schemas are imported with the first one.
    from imp_service.text.constraints.json_schema import hints_of

    return hints_of(spec.source)


def _structured_outputs(value: Mapping[str, Any]) -> ConstraintSpec | None:
    given = known_members(value, STRUCTURED)
    found = [spec for name in given if (spec := inner(given, name, STRUCTURED[name])) is not None]
    if len(found) > 1:
        raise WrongValue(f"{len(found)} constraints, expected at most one")
    return found[0] if found else None


STRUCTURED: Mapping[str, Callable[[Any], ConstraintSpec | None]] = {
    "json": json_schema,
    "regex": lambda value: ConstraintSpec(ConstraintKind.REGEX, text(value)),
    "choice": lambda value: ConstraintSpec(ConstraintKind.CHOICES, choices=texts(value)),
    "grammar": lambda value: ConstraintSpec(ConstraintKind.GBNF, text(value)),
    "json_object": lambda value: ConstraintSpec(ConstraintKind.JSON_OBJECT) if flag(value) else None,
}
OWN: Mapping[str, ReadSpec] = {
    "structured_outputs": _structured_outputs,
    "grammar": lambda source: ConstraintSpec(ConstraintKind.GBNF, source),
}
