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
from imp_service.text.constraints.json_schema import hints_of
from imp_service.text.constraints.schema_core import FORMATS
from support.text.tiny_vocabularies import byte_level

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


# Keywords that cannot be enforced, and values of them that restrict.
UNSUPPORTED: dict[str, object] = {
    **{key: {} for key in ("not", "if", "contains", "$dynamicRef", "$recursiveRef", "foo")},
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), False),
    **{key: {"a": ["b"]} for key in ("dependentRequired", "dependencies")},
    **{"dependentSchemas": {"a": {}}, "maxContains": 1, "uniqueItems": True, "propertyNames": {"pattern": "^a"}},
}
# The same where they allow everything, and annotations.
HARMLESS: list[dict[str, object]] = [
    *({"contentEncoding": "base64"}, {"contentMediaType": "text/plain"}, {"x-order": 3}, {"x-guidance": {}}),
    *({"discriminator": {"propertyName": "kind"}}, {"nullable": False}, {"$anchor": "a"}, {"example": 1}),
    *({"uniqueItems": False}, {"propertyNames": {"type": "string"}}, {"propertyNames": True}, {"then": {}}),
    *({"dependentRequired": {}}, {"unevaluatedProperties": True}, {"unevaluatedItems": {}}, {"minContains": 1}),
    *({"additionalItems": False}, {"$id": "http://a/b"}, {"$schema": "http://nope"}),
    *({"format": each} for each in ("path", "password", "binary", "cuid", "nanoid", "jwt")),
]


def _places(part: dict[str, object]) -> list[dict[str, object]]:
    """Schemas with a part at the top and below."""
    return [
        part,
        {"properties": {"p": part}},
        {"items": part},
        {"anyOf": [{"type": "string"}, {"allOf": [part]}]},
        {"$ref": "#/$defs/d", "$defs": {"d": {"prefixItems": [part]}}},
        {"patternProperties": {"^a": {"additionalProperties": part}}},
        {"$defs": {"unreferenced": part}},
    ]


@pytest.mark.parametrize("keyword", UNSUPPORTED)
def test_txt_22_t35_unsupported_keywords_are_named_also_when_nested(keyword: str) -> None:
    for schema in _places({"type": "object", keyword: UNSUPPORTED[keyword]}):
        refused = _refusal(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
        assert repr(keyword) in refused.message and refused.message.startswith("at #")


@pytest.mark.parametrize("keyword", UNSUPPORTED)
def test_txt_35_a_keyword_that_cannot_be_enforced_is_a_hint_if_the_schema_is_not_strict(keyword: str) -> None:
    kept = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = {"type": "array", "items": {**kept, keyword: UNSUPPORTED[keyword]}}
    spec = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema), is_strict=False)
    assert _admits(spec, '[{"n": 1}]') and not _admits(spec, '[{"n": "x"}]') and not _admits(spec, "[{}]")
    assert f"#/items/{keyword}" in hints_of(spec.source)


def test_txt_35_only_keywords_that_restrict_are_hints() -> None:
    parts = {f"p{i}": {"type": "string", **part} for i, part in enumerate(HARMLESS)}
    assert hints_of(json.dumps({"properties": {**parts, "~/": {"pattern": "(?=a)"}}})) == ["#/properties/~0~1/pattern"]
    for wrong in ("", "[", "7", "true", '{"properties": 7}', "[" * 100_000):
        assert hints_of(wrong) == []


@pytest.mark.parametrize("part", HARMLESS, ids=json.dumps)
def test_txt_35_annotations_and_keywords_that_allow_everything_change_nothing(part: dict[str, object]) -> None:
    for schema in _places({"type": "string", **part}):
        COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema)))
    schema = {"type": "array", "items": {"type": "string", "maxLength": 1, **part}}
    assert _admits(schema, '["a"]') and not _admits(schema, '["ab"]') and not _admits(schema, "[1]")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "nullable": True}, ("1", "null"), ('"a"',)),
        ({"type": "string", "enum": ["a"], "nullable": True}, ('"a"', "null"), ('"b"',)),
        ({"const": 1, "nullable": True}, ("1", "null"), ("2",)),
        ({"$ref": "#/$defs/a", "nullable": True, "$defs": {"a": {"type": "integer"}}}, ("1", "null"), ('"a"',)),
        ({"oneOf": [{"type": "integer"}, {"type": "boolean"}], "nullable": True}, ("1", "true", "null"), ('"a"',)),
        (
            {"type": "array", "items": [{"type": "integer"}, {"type": "null"}], "additionalItems": False},
            ("[]", "[1]", "[1, null]"),
            ("[null]", "[1, null, 1]"),
        ),
        ({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}}, ("[1, null]", "{}"), ("[1, 1]",)),
        ({"type": "array", "items": []}, ("[]", '[1, "a"]'), ("1",)),
        ({"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "integer"}}}, ("1",), ("null",)),
        (
            {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}, "type": "object"},
            ('{"a": 1, "b": 2}',),
            ('{"b": "x"}',),
        ),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True, "maximum": 4}, ("4",), ("3", "5")),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": False, "maximum": 4}, ("3", "4"), ("5",)),
    ],
)
def test_txt_35_keywords_of_older_drafts_and_of_openapi_are_enforced(
    schema: dict[str, object], good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    assert [text for text in good if not _admits(schema, text)] == []
    assert [text for text in bad if _admits(schema, text)] == []


def test_txt_35_formats_that_the_library_knows_are_enforced() -> None:
    right = {
        **{"date-time": "2020-01-02T03:04:05Z", "time": "03:04:05Z", "date": "2020-01-02", "duration": "P1D"},
        **{"email": "a@b.cd", "hostname": "a.bc", "ipv4": "1.2.3.4", "ipv6": "::1", "uri": "http://a/b"},
        "uuid": "123e4567-e89b-12d3-a456-426614174000",
    }
    assert right.keys() == FORMATS
    for name, text in right.items():
        schema = {"type": "string", "format": name}
        assert _admits(schema, json.dumps(text)) and not _admits(schema, '" x"'), name


def test_txt_35_a_pattern_that_looks_around_is_a_hint_or_refused() -> None:
    for pattern in ("^(?!a)b$", "(?<=a)b", r"(a)\1", r"\\(?=b)"):
        schema = json.dumps({"properties": {"p": {"type": "string", "pattern": pattern}}})
        assert "at #/properties/p/pattern" in _refusal(ConstraintKind.JSON_SCHEMA, schema).message
        assert _admits(ConstraintSpec(ConstraintKind.JSON_SCHEMA, schema, is_strict=False), '{"p": "any"}')
    for pattern in (r"\(\?=a", "[(?=]", r"[\]1]b"):
        COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps({"pattern": pattern})))


def test_txt_35_schemas_of_one_of_that_may_overlap_are_named_or_any_of() -> None:
    both = {"oneOf": [{"type": "number"}, {"type": "integer"}]}
    schema = {"properties": {"a": both, "b": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}
    message = _refusal(ConstraintKind.JSON_SCHEMA, json.dumps(schema)).message
    assert message.startswith("at #/properties/a: oneOf: ") and "coerce" not in message
    hinted = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema), is_strict=False)
    assert _admits(hinted, '{"a": 1, "b": null}') and not _admits(hinted, '{"a": "x"}')
    more = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps({**both, "anyOf": [{"minimum": 3}]}), is_strict=False)
    assert _admits(more, "4") and not _admits(more, "2") and not _admits(more, '"a"')


def test_txt_35_a_reference_in_a_part_with_an_identifier_of_its_own_is_refused() -> None:
    inner = {"$id": "http://a/b", "properties": {"c": {"$ref": "#/$defs/d"}}}
    schema = {"properties": {"p": inner}, "$defs": {"d": {"type": "null"}}}
    assert "#/properties/p/properties/c/$ref" in _refusal(ConstraintKind.JSON_SCHEMA, json.dumps(schema)).message


def _admits(schema: dict[str, object] | ConstraintSpec, text: str) -> bool:
    """Whether a constraint allows a whole text."""
    spec = (
        schema if isinstance(schema, ConstraintSpec) else ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    )
    state = COMPILER.compile(spec).start()
    return all(state.accept(token) for token in TOKENIZER.encode(text, add_special_tokens=False)) and state.may_end


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
        ({"properties": []}, "#/properties"),
        ({"items": [3]}, "at #/items/0"),
        ({"nullable": 1}, "at #/nullable: expected true or false"),
        ({"anyOf": []}, "#/anyOf"),
        ({"anyOf": [3]}, "#/anyOf/0"),
        ({"required": "a"}, "#/required"),
        ({"enum": "a"}, "at #/enum: expected a list of values"),
        ({"minItems": "x"}, 'at #/minItems: expected a number from 0, found "x"'),
        ({"type": "string", "maxLength": -1}, "at #/maxLength: expected a number from 0"),
        ({"enum": []}, "nsatisfiable"),
        ({"minimum": 3, "maximum": 2, "type": "integer"}, "at #: Unsatisfiable schema: minimum"),
        ({"items": {"properties": {"p": {"type": "string", "pattern": "(a"}}}}, "at #/items/properties/p: unclosed"),
        ({"$ref": "#/$defs/d", "$defs": {"d": {"items": {"pattern": "[", "type": "string"}}}}, "at #/$defs/d/items: "),
        ({"type": "string", "pattern": "(?=a)b"}, "look-a"),
        ({"type": "string", "pattern": "(a"}, "unclosed"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
    ],
)
def test_txt_22_t35_t36_invalid_schemas_are_refused(schema: dict[str, object], said: str) -> None:
    assert said in _refusal(ConstraintKind.JSON_SCHEMA, json.dumps(schema)).message


def test_txt_22_t38_nesting() -> None:
    def nested(depth: int) -> str:
        return '{"items":' * (depth - 1) + "{}" + "}" * (depth - 1)

    COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, nested(64)))
    assert "nested more than 64" in _refusal(ConstraintKind.JSON_SCHEMA, nested(65)).message
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
def test_txt_22_t39_invalid_regexes_are_refused(source: str, said: str) -> None:
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
def test_regexes_that_only_look_large_are_accepted(source: str) -> None:
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
def test_txt_22_t41_invalid_grammars_are_refused(source: str, said: str) -> None:
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
def test_t43_invalid_choices_are_refused(choices: tuple[str, ...], path: str) -> None:
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
