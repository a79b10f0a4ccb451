"""Arguments in a dialect's own notation: converted to JSON, ended by wrong text, forced by a schema, or plain text."""

from __future__ import annotations

import ast
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imp_service.text import FieldInvalid
from imp_service.text.channels.notation import GEMMA, MAX_BARE, MAX_DEPTH, PYTHON, Notation, NotationReader
from imp_service.text.channels.schema_types import types_of
from imp_service.text.channels.typed_value import TypedValue
from support.text.forced_call import allows, constraint_of, with_value


def converted(notation: Notation, text: str) -> tuple[str, str]:
    """Returns the JSON, and the text after the arguments. Checks that bytewise reading gives the same."""
    reader, data = NotationReader(notation), text.encode()
    end = reader.feed(data)
    whole = reader.take()
    slow, n_read = NotationReader(notation), 0
    taken = ""
    for byte in data:
        found = slow.feed(bytes([byte]))
        taken += slow.take()
        n_read += 1 if found is None else found
        if found is not None:
            break
    assert (taken, n_read) == (whole, len(data) if end is None else end)
    return whole, "" if end is None else data[end:].decode()


@pytest.mark.parametrize(
    ("notation", "text", "value"),
    [
        (GEMMA, "}", {}),
        (GEMMA, 'city:<|"|>Rome<|"|>,n:-1.5e3}', {"city": "Rome", "n": -1500.0}),
        (GEMMA, ' city : <|"|>a "b" \\n <|"<|"|> }', {"city": 'a "b" \\n <|"'}),
        (GEMMA, 'l:[1,<|"|>x<|"|>,[],{a:null}]}', {"l": [1, "x", [], {"a": None}]}),
        (GEMMA, "t:true,f:false,n:None}", {"t": True, "f": False, "n": None}),
        (GEMMA, '<|"|>key<|"|>:1}', {"key": 1}),
        (GEMMA, "word:centre left}", {"word": "centre left"}),
        (PYTHON, ")", {}),
        (PYTHON, 'city="Rome", n=1, )', {"city": "Rome", "n": 1}),
        (PYTHON, "a='it\\'s \\x41\\u00fc\\U0001F600 \\d')", {"a": "it's Aü😀 \\d"}),
        (PYTHON, "b=[True, False, None], c={'k': 'v'})", {"b": [True, False, None], "c": {"k": "v"}}),
        (PYTHON, 'a="\\ud83d\\ude00", b = NaN, c=true)', {"a": "😀", "b": "NaN", "c": True}),
    ],
)  # fmt: skip
def test_chn_5_a_notation_is_json(notation: Notation, text: str, value: object) -> None:
    found, rest = converted(notation, text + "rest")
    assert (json.loads(found), rest) == (value, "rest")


@pytest.mark.parametrize(
    ("notation", "text", "rest"),
    [
        (GEMMA, "a:}", "}"),
        (GEMMA, 'a:1<tool_call|>', "<tool_call|>"),
        (GEMMA, "a:" + "x" * (MAX_BARE + 72), "x" * 72),
        (PYTHON, 'a="\\xg1")', 'g1")'),
        (PYTHON, 'a="\\UFFFFFFFF")', '")'),
        (PYTHON, "a=" + "[" * MAX_DEPTH + "1", "[1"),
    ],
)  # fmt: skip
def test_chn_4_wrong_text_ends_the_arguments(notation: Notation, text: str, rest: str) -> None:
    assert converted(notation, text)[1] == rest


SCALARS = st.one_of(
    st.text(max_size=6), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@pytest.mark.long
@given(arguments=st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), VALUES, max_size=3))
def test_chn_5_what_python_writes_is_read_as_python_reads_it(arguments: dict[str, object]) -> None:
    """Python's own parser is the oracle."""
    text = ", ".join(f"{key}={value!r}" for key, value in arguments.items()) + ")"
    call = ast.parse(f"f({text}", mode="eval").body
    assert isinstance(call, ast.Call)
    expected = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    assert json.loads(converted(PYTHON, text)[0]) == expected


@given(text=st.lists(st.sampled_from([*"a1:,={}[]()\"'\\ \n", '<|"|>', "ü", "\x00"]), max_size=30).map("".join))
def test_chn_1_any_text_is_read_the_same_in_pieces(text: str) -> None:
    for notation in (GEMMA, PYTHON):
        converted(notation, text)


def accepts(row: str, schema: object, arguments: str) -> bool:
    """Returns whether the constraint allows a complete call with these arguments."""
    text = {"gemma4": "<|tool_call>call:f{%s}<tool_call|>", "lfm2": "<|tool_call_start|>[f(%s)]<|tool_call_end|>"}[row]
    return allows(row, schema, text % arguments)


LISTS = {"type": "object", "properties": {"v": {"type": "array", "items": {"type": "integer"}}}, "required": ["v"]}
TREE = {
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/node"}},
    "required": ["v"],
    "$defs": {"node": {"type": "object", "properties": {"n": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
}
# Keywords apply to one of the types only.
NULLABLE = {
    "type": "object",
    "properties": {
        "v": {"type": ["integer", "null"], "minimum": 0, "maximum": 99},
        "w": {"type": ["integer", "null"], "enum": [2, None]},
    },
}
EITHER = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": ["x", 2, None, True]}}}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("schema", "gemma", "python", "is_valid"),
    [
        (LISTS, "v:[]", "v=[]", True),
        (LISTS, "v:[1,2,3,4]", "v=[1,2,3,4]", True),
        (LISTS, 'v:[<|"|>1<|"|>]', 'v=["1"]', False),
        (LISTS, "", "", False),
        (TREE, "v:{n:[{},{n:[]}]}", 'v={"n":[{},{"n":[]}]}', True),
        (TREE, "v:{n:[1]}", 'v={"n":[1]}', False),
        (EITHER, "", "", True),
        (EITHER, 'b:<|"|>x<|"|>', 'b="x"', True),
        (EITHER, 'a:<|"|>a{,}:ü<|"|>,b:null', 'a="a{,}:ü\\\\",b=None', True),
        (EITHER, "a:null,b:true", "a=None,b=True", True),
        (EITHER, 'b:<|"|>y<|"|>', 'b="y"', False),
        (EITHER, "c:1", "c=1", False),
        ({"type": "object", "properties": {"v": {}}}, "v:7", "v=7", True),
        (NULLABLE, "v:99,w:null", "v=99,w=None", True),
        (NULLABLE, "v:null,w:2", "v=None,w=2", True),
        (NULLABLE, "v:100", "v=100", False),
        (NULLABLE, "v:-1", "v=-1", False),
        (NULLABLE, "w:1", "w=1", False),
    ],
)
def test_tol_1_a_schema_forces_a_notation(schema: object, gemma: str, python: str, is_valid: bool) -> None:
    assert accepts("gemma4", schema, gemma) == is_valid
    assert accepts("lfm2", schema, python) == is_valid


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"type": "string", "pattern": "a"}, "'pattern'"),
        ({"type": "object", "minProperties": 1}, "'minProperties'"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "'oneOf'"),
        ({"enum": [[1]]}, "'enum' of arrays"),
        ({"allOf": [{"type": "string"}]}, "'None'"),
        ({"type": "object", "required": ["w"]}, "'w'"),
    ],
)
@pytest.mark.parametrize("row", ["gemma4", "lfm2"])
def test_tol_3_a_notation_refuses_what_its_rules_cannot_force(row: str, value: object, words: str) -> None:
    side, constraint = constraint_of(row, with_value(value), is_strict=True)
    with pytest.raises(FieldInvalid) as caught:
        side.compile(constraint)
    assert words in caught.value.message and f"in the dialect {row}" in caught.value.message
    side, hinted = constraint_of(row, with_value(value))
    assert side.compile(hinted)


def test_txt_35_what_a_notation_cannot_force_is_a_hint() -> None:
    call = "<|tool_call_start|>[f(v=%s)]<|tool_call_end|>"
    cases: list[tuple[object, tuple[str, ...], tuple[str, ...]]] = [
        ({"type": "string", "pattern": "a", "maxLength": 2}, ('"b"',), ('"bcd"', "1")),
        ({"enum": [[1], "a"]}, ('"a"',), ('"b"', "[1]")),
        ({"enum": [[1]]}, ('"b"', "1"), ()),
        ({"anyOf": [{"type": "integer"}], "minimum": 3}, ("4", "2"), ('"a"',)),
        ({"allOf": [{"type": "string"}]}, ('"a"', "1"), ()),
        ({"type": "object", "required": ["w"]}, ("{}",), ("1",)),
    ]
    for value, good, bad in cases:
        assert [text for text in (*good, *bad) if allows("lfm2", with_value(value), call % text)] == [*good], value


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
