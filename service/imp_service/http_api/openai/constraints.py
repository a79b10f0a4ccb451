"""The fields that constrain the output, as one constraint of imp."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from imp_service.http_api.requests.constraints import OWN, ReadSpec, inner, json_schema, one_constraint
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.values import (
    WrongValue,
    anything,
    expected,
    flag,
    members,
    only,
    only_or_ignored,
    read_members,
    shown,
    text,
)
from imp_service.text import ConstraintKind, ConstraintSpec

SHOWN_KINDS = "text, json_object or json_schema"


def read_constraint(reading: Reading) -> ConstraintSpec | None:
    """The constraint, or None. At most one field may set one."""
    _check_members(reading)
    return one_constraint(reading, READERS, lambda name: _place(name, reading.get(name)))


def _check_members(reading: Reading) -> None:
    """Refuses or ignores members of an output format that its type does not have."""
    for path, value, types in (
        ("response_format", reading.get("response_format"), FORMATS),
        ("text.format", reading.get("text", {}).get("format"), TEXT_FORMATS),
    ):
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in types:
            reading.check_members(path, value, types[kind])
            schema = value.get("json_schema")
            if "json_schema" in types[kind] and isinstance(schema, dict):
                reading.check_members(f"{path}.json_schema", schema, JSON_SCHEMA)


def _place(name: str, value: Any) -> str:
    """The path of the constraint within its field."""
    if name == "response_format":
        return ".schema" if value.get("type") == "json_object" else ".json_schema.schema"
    if name == "text":
        return ".format.schema"
    return ""


def _response_format(value: Mapping[str, Any]) -> ConstraintSpec | None:
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            # Not of OpenAI; llama-server and hosts of open models take the schema here.
            return _schema(value, "")
        case "json_schema":
            found = inner(value, "json_schema", _json_schema)
            return _schema(found, ".json_schema")
    raise WrongValue(f"{shown(value.get('type'))}, expected {SHOWN_KINDS}", ".type")


def _json_schema(value: Any) -> Mapping[str, Any]:
    return read_members(_known(members(value), JSON_SCHEMA), JSON_SCHEMA)


def _text(value: Any) -> ConstraintSpec | None:
    """The field of /v1/responses: its format has the members of `json_schema` itself."""
    return read_members(value, TEXT).get("format")


def _text_format(value: Any) -> ConstraintSpec | None:
    if members(value).get("type") != "json_schema":
        return _response_format(value)
    found = read_members(_known(value, TEXT_FORMAT), TEXT_FORMAT)
    for name in ("name", "schema"):
        if name not in found:
            raise WrongValue("not set", f".{name}")
    return _schema(found, "")


def _known(value: Mapping[str, Any], readers: Mapping[str, object]) -> Mapping[str, Any]:
    """Without the members that _check_members() has refused or ignored."""
    return {name: each for name, each in value.items() if name in readers}


def _schema(value: Mapping[str, Any], where: str) -> ConstraintSpec:
    schema = value.get("schema")
    if schema is None:
        return ConstraintSpec(ConstraintKind.JSON_OBJECT)
    if not isinstance(schema, dict | bool):
        raise expected("an object", schema, f"{where}.schema")
    source, is_strict = json.dumps(schema, ensure_ascii=False), value.get("strict", False)
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, source, is_strict=is_strict)


def _format(value: Any) -> ConstraintSpec | None:
    """Ollama's field: "json", or a JSON Schema."""
    if isinstance(value, dict):
        return json_schema(value)
    return ConstraintSpec(ConstraintKind.JSON_OBJECT) if only("json", "")(value) else None


JSON_SCHEMA: Mapping[str, Callable[[Any], Any]] = {
    "name": text,
    "schema": anything,
    "description": text,
    "strict": flag,
}
TEXT_FORMAT: Mapping[str, Callable[[Any], Any]] = {**JSON_SCHEMA, "type": text, "schema": members}
# The members of each type of an output format.
FORMATS: Mapping[str, Collection[str]] = {
    "text": ("type",),
    "json_object": ("type", "schema"),
    "json_schema": ("type", "json_schema"),
}
TEXT_FORMATS: Mapping[str, Collection[str]] = {**FORMATS, "json_schema": tuple(TEXT_FORMAT)}
TEXT: Mapping[str, Callable[[Any], Any]] = {
    "format": _text_format,
    "verbosity": only_or_ignored(("medium",), ("low", "high")),
}
READERS: Mapping[str, ReadSpec] = {"response_format": _response_format, "text": _text, **OWN, "format": _format}
