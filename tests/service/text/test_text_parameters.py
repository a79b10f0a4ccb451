"""Forced parameters whose values are plain text: what the parser makes of an allowed text is valid."""

from __future__ import annotations

import json

import jsonschema
import pytest

from imp_service.text import FieldInvalid
from imp_service.text.channels.schema_types import types_of
from imp_service.text.channels.typed_value import TypedValue
from support.forced_call import allows, constraint_of, with_value

CALL = "<tool_call>\n<function=f>\n<parameter=v>\n%s\n</parameter>\n</function>\n</tool_call>"
NULLABLE_NAME = {"type": ["string", "null"], "enum": ["a", "b c"]}
MIXED = {"type": ["string", "integer", "boolean"], "enum": ["a", 7, 1.5, None, True]}
TEXTS = ("", "a", "b c", "ab", "null", "None", "7", "8", "1.5", "true", "false", "True", '"a"', "abcdef")


def parsed(schema: object, text: str) -> object:
    """The value that the parser converts a text to."""
    parser = TypedValue(types_of(schema, {}))
    return json.loads(parser.feed(text.encode()) + parser.finish())


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        (NULLABLE_NAME, {"a", "b c"}),
        ({"type": ["string", "null"], "const": "a"}, {"a"}),
        ({"enum": ["a", None]}, {"a", "null"}),
        (MIXED, {"a", "7", "true"}),
        ({"type": ["string", "null"], "enum": ["a", "ab", None], "maxLength": 1}, {"a", "null"}),
        ({"anyOf": [NULLABLE_NAME, {"type": "boolean"}]}, {"a", "b c", "true", "false"}),
        ({"type": ["string", "null"], "maxLength": 2}, {"", "a", "ab", "7", "8", "null"}),
    ],
)
def test_tol_1_an_allowed_text_is_a_value_of_the_schema(schema: object, allowed: set[str]) -> None:
    found = {text for text in TEXTS if allows("qwen-xml", with_value(schema), CALL % text)}
    assert found == allowed
    for text in found:
        jsonschema.validate(parsed(schema, text), schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"], "enum": ["a", "null"]},  # the parser takes it for null
        {"type": ["string", "integer"], "enum": ["5"]},
        {"type": ["string", "null"], "enum": [7]},  # no value is valid
        {"type": "string", "enum": ["a"], "pattern": "b"},
        {"type": "string", "enum": ["a"], "const": "b"},
    ],
)
def test_tol_3_constants_that_text_cannot_be_are_refused(schema: object) -> None:
    side, constraint = constraint_of("qwen-xml", with_value(schema), is_strict=True)
    with pytest.raises(FieldInvalid) as caught:
        side.compile(constraint)
    assert "'enum' cannot be enforced in the dialect qwen-xml" in caught.value.message


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"], "enum": ["a", "null", "b"]}, ("a", "b"), ("c", "null")),
        ({"type": "string", "pattern": "b", "maxLength": 2}, ("a", "xy"), ("xyz",)),
        ({"type": ["string", "array"]}, ("a", "[1]", "{"), ()),
        ({"allOf": [{"type": "string"}]}, ("a", "[1]"), ()),
        ({"type": "string", "nullable": True, "maxLength": 4}, ("a", "null"), ("abcde",)),
    ],
)
def test_txt_35_what_text_cannot_be_held_to_is_a_hint(
    schema: object, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    assert [text for text in (*good, *bad) if allows("qwen-xml", with_value(schema), CALL % text)] == [*good]


def test_txt_35_parameters_that_nobody_declares_are_not_written() -> None:
    schema = {**with_value({"type": "null"}), "required": ["v", "w"], "minProperties": 1}
    assert allows("qwen-xml", schema, CALL % "null")
