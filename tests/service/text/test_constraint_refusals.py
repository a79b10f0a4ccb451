"""A constraint that cannot be compiled is refused by name; imp never answers without the constraint."""

from __future__ import annotations

import json

import pytest

from imp_service.text import (
    ConstraintCompiler,
    ConstraintKind,
    ConstraintSpec,
    FieldInvalid,
    NativePanic,
    TextLimits,
    Tokenizer,
)
from support.tiny_vocabularies import byte_level

TOKENIZER = Tokenizer.from_metadata(byte_level())
COMPILER = ConstraintCompiler(TOKENIZER, vocab_size=TOKENIZER.vocab_size)


def _refusal(kind: ConstraintKind, source: str = "", choices: tuple[str, ...] = ()) -> FieldInvalid:
    with pytest.raises(FieldInvalid) as caught:
        COMPILER.compile(ConstraintSpec(kind, source, choices))
    assert caught.value.reason == "FIELD_INVALID"
    assert caught.value.path.startswith(f"constraint.{kind.value}")
    assert 0 < len(caught.value.message) <= 300 and "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    "source",
    [
        "",
        " \n",
        "[]",
        '"x"',
        "1",
        "null",
        "false",
        "{",
        '{"type": "object"',
        '{"a": NaN}',
        '{"type": 1, "type": 2}',
        "x" * (2**16 + 1),
    ],
)
def test_t34_no_schema(source: str) -> None:
    _refusal(ConstraintKind.JSON_SCHEMA, source)


UNSUPPORTED = (
    *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems", "$anchor"),
    *(
        "$dynamicRef",
        "$recursiveRef",
        "contentEncoding",
        "contentMediaType",
        "nullable",
        "x-guidance",
        "foo",
        "additionalItems",
    ),
)


@pytest.mark.parametrize("keyword", UNSUPPORTED)
def test_txt_22_t35_unsupported_keywords_are_named_also_when_nested(keyword: str) -> None:
    bad = {"type": "object", keyword: {}}
    for schema in (
        bad,
        {"properties": {"p": bad}},
        {"items": bad},
        {"anyOf": [{"type": "string"}, {"allOf": [bad]}]},
        {"$ref": "#/$defs/d", "$defs": {"d": {"prefixItems": [bad]}}},
        {"patternProperties": {"^a": {"additionalProperties": bad}}},
        {"$defs": {"unreferenced": bad}},
    ):
        assert repr(keyword) in _refusal(ConstraintKind.JSON_SCHEMA, json.dumps(schema)).message


def test_txt_22_an_identifier_inside_would_move_references() -> None:
    COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"$id": "http://a/b", "type": "null"}'))
    assert "$id" in _refusal(ConstraintKind.JSON_SCHEMA, '{"items": {"$id": "http://a/b"}}').message


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#"}, "without an end"),
        ({"anyOf": [{"$ref": "#"}]}, "without an end"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "without an end"),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "without an end"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "without an end"),
        ({"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}, "at #/properties/x"),
        ({"$ref": "http://example.com/s"}, "http://example.com/s"),
        ({"allOf": [True], "$ref": "#/allOf/1"}, "leads nowhere"),
        ({"allOf": [True], "$ref": "#/allOf/-1"}, "leads nowhere"),
        ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"items": {"$ref": "other.json#/a"}}, "other.json"),
        ({"$ref": "#/$defs/none"}, "leads nowhere"),
        ({"$ref": "#/required", "required": ["a"]}, "schema"),
        ({"$ref": "#frag"}, "#frag"),
        ({"$ref": 3}, "3"),
        ({"type": "strin"}, "strin"),
        ({"type": ["string", "nope"]}, "nope"),
        ({"format": "nope", "type": "string"}, "nope"),
        ({"items": [{"type": "integer"}]}, "#/items"),
        ({"properties": []}, "#/properties"),
        ({"anyOf": []}, "#/anyOf"),
        ({"anyOf": [3]}, "#/anyOf/0"),
        ({"required": "a"}, "#/required"),
        ({"enum": "a"}, "at #/enum: expected a list of values"),
        ({"minItems": "x"}, 'at #/minItems: expected a number from 0, found "x"'),
        ({"type": "string", "maxLength": -1}, "at #/maxLength: expected a number from 0"),
        ({"enum": []}, "nsatisfiable"),
        ({"minimum": 3, "maximum": 2, "type": "integer"}, "nsatisfiable"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-a"),
        ({"type": "string", "pattern": "(a"}, "unclosed"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
        ({"$schema": "http://nope"}, "nope"),
    ],
)
def test_txt_22_t35_t36_schemas_that_are_wrong(schema: dict[str, object], said: str) -> None:
    assert said in _refusal(ConstraintKind.JSON_SCHEMA, json.dumps(schema)).message


def test_txt_22_t38_nesting() -> None:
    def nested(depth: int) -> str:
        return '{"items":' * (depth - 1) + "{}" + "}" * (depth - 1)

    COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, nested(64)))
    assert "65" in _refusal(ConstraintKind.JSON_SCHEMA, nested(65)).message
    _refusal(ConstraintKind.JSON_SCHEMA, "[" * 60_000)
    for kind, head in ((ConstraintKind.REGEX, ""), (ConstraintKind.GBNF, "root ::= ")):
        atom = "a" if kind is ConstraintKind.REGEX else '"a"'
        COMPILER.compile(ConstraintSpec(kind, head + "(" * 64 + atom + ")" * 64))
        assert "nested more than 64" in _refusal(kind, head + "(" * 65 + atom + ")" * 65).message
    limits = TextLimits(regex_bytes=10**6, constraint_bytes=10**6)
    compiler = ConstraintCompiler(TOKENIZER, vocab_size=TOKENIZER.vocab_size, limits=limits)
    for kind, source in (
        (ConstraintKind.REGEX, "(" * 100_000),
        (ConstraintKind.GBNF, "root ::= " + "(" * 100_000),
        (ConstraintKind.REGEX, "[" * 100_000),
    ):
        with pytest.raises(FieldInvalid, match="nested more than"):
            compiler.compile(ConstraintSpec(kind, source))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "empty"),
        ("(", "unclosed"),
        ("a)", "un"),
        ("[a", "unclosed"),
        (r"(a)\1", "backreference"),
        ("a(?=b)", "look-a"),
        ("(?<!a)b", "look-a"),
        (r"\bword\b", "look"),
        ("a{1025}", "1025"),
        ("a{2,4000}", "4000"),
        ("(a{1000}){1000}{1000}", "repeats expand to more"),
        ("((a{1,99}b){99}c){99}", "repeats expand to more"),
        ("([ab]{500}|c){500}", "repeats expand to more"),
        ("a" * 8193, "8193 bytes"),
        (r"\p{Nope}", "Unicode"),
    ],
)
def test_txt_22_t39_regexes_that_cannot_be(source: str, said: str) -> None:
    assert said.lower() in _refusal(ConstraintKind.REGEX, source).message.lower()


@pytest.mark.parametrize(
    "source",
    [
        "a{0,1024}",
        r"[\]\[{}()]{3}\{9999\}",
        r"[]a]{2}[^]]",
        r"\x{1F600}\u{41}\p{L}{2}",
        "(?:a{30}){30}",
        "(?i)a|",
        "(?P<x>a){2}",
    ],
)
def test_regexes_that_only_look_large(source: str) -> None:
    COMPILER.compile(ConstraintSpec(ConstraintKind.REGEX, source))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "empty"),
        ("# nothing\n", "empty"),
        ('rot ::= "a"', "root"),
        ("root ::= x", "'x'"),
        ("root ::= root", "without an end"),
        ("root ::= a\na ::= b\nb ::= a", "without an end"),
        ('root ::= "a" | x\nx ::= "(" x ")"', "'x'"),
        ('root ::= "a"{3,1}', "offset 12"),
        ('root ::= "a"{x}', "bad repeat"),
        ('root ::= "a"{1,2,3}', "bad repeat"),
        ('root ::= "a"{99999}', "repeat"),
        ('root ::= "a"{', "bad repeat"),
        ('root ::= (("a"{1000}){1000}){1000}', "repeats expand to more"),
        ('root ::= x{1000}\nx ::= y{1000}\ny ::= "a"{1000}', "repeats expand to more"),
        ('root ::= "a', "not closed"),
        ("root ::= [a", "not closed"),
        ("root ::= []", "empty"),
        ("root ::= [z-a]", "backwards"),
        (r'root ::= "\q"', "escape"),
        (r'root ::= "\ud800"', "U+D800"),
        (r'root ::= "\U00110000"', "U+110000"),
        ('root ::= ("a"', "expected ')'"),
        ('root ::= "a")', "unexpected"),
        ('root = "a"', "::="),
        ('root ::= "a"\nroot ::= "b"', "twice"),
        ("root ::= " + "(" * 60_000, "nested"),
        ("\n".join(f"{i:x}::={i + 1:x}" for i in range(5000)), "rules"),
        ('root ::= "a"' + " " * 2**16, "bytes"),
        ("root ::= <[1234]>", "rule's name"),
    ],
)
def test_txt_22_t41_grammars_that_cannot_be(source: str, said: str) -> None:
    assert said in _refusal(ConstraintKind.GBNF, source).message


def test_t41_doubling_rules_stay_small() -> None:
    """Each of 30 rules is twice the next: written out, the expression would have a thousand million characters."""
    source = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(30)) + '\nr30 ::= "a"'
    assert "repeats expand to more" in _refusal(ConstraintKind.GBNF, source).message
    source = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}? | r{i + 1} root" for i in range(400)) + '\nr400 ::= "a"'
    COMPILER.compile(ConstraintSpec(ConstraintKind.GBNF, source))


@pytest.mark.parametrize(
    ("choices", "path"),
    [
        ((), "constraint.choices"),
        (("a", ""), "constraint.choices.values[1]"),
        (("a",) * 1025, "constraint.choices"),
        (("é" * 513,), "constraint.choices.values[0]"),
        (tuple("x" * 1000 + str(i) for i in range(70)), "constraint.choices"),
    ],
)
def test_t43_choices_that_are_none(choices: tuple[str, ...], path: str) -> None:
    assert _refusal(ConstraintKind.CHOICES, choices=choices).path == path


def test_t46_a_large_enumeration_compiles_or_is_refused() -> None:
    values = list(range(10_000))
    source = json.dumps({"enum": values}, separators=(",", ":"))
    assert len(source) < 2**16
    program = COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, source))
    state = program.start()
    for byte in b"9999":
        assert state.accept(byte)
    assert state.only_end_is_possible


def test_t12_t47_t51_a_panic_while_compiling_is_that_call_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_args: object, **_kwargs: object) -> None:
        raise type("PanicException", (BaseException,), {})("forced")

    constraint = ConstraintSpec(ConstraintKind.REGEX, "panic+")
    with monkeypatch.context() as patched:
        patched.setattr("imp_service.text.constraints.compiler.LLMatcher", panic)
        panic.grammar_from_lark = str  # type: ignore[attr-defined]
        with pytest.raises(NativePanic):
            COMPILER.compile(constraint)
    assert COMPILER.compile(constraint).start().accept(ord("p"))
