"""Constraints: masks allow exactly the language, and finished texts belong to it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable

import jsonschema
import pytest

from imp_service.text import ConstraintCompiler, ConstraintKind, ConstraintSpec, FieldInvalid, TextLimits, Tokenizer
from support.run.quick_run import Repeats
from support.text.constraint_sampling import allowed_ids, language, sample
from support.text.tiny_vocabularies import byte_level, sentencepiece

MERGES = [("a", "b"), ("t", "r"), ("tr", "u"), ("tru", "e"), ('"', ":"), ("{", '"'), ("1", "2")]
TOKENIZER = Tokenizer.from_metadata(byte_level(merges=MERGES))
ENDS = sorted(TOKENIZER.eos_ids)
V = TOKENIZER.vocab_size + 70
COMPILER = ConstraintCompiler(TOKENIZER, vocab_size=V)


def _schema(schema: object) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))


def _regex(source: str) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.REGEX, source)


def _gbnf(source: str) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.GBNF, source)


def _choices(*choices: str) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.CHOICES, choices=choices)


ANY_OBJECT = ConstraintSpec(ConstraintKind.JSON_OBJECT)

TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["v"],
            "additionalProperties": False,
        }
    },
}
RECORD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "a record",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "kind": {"enum": ["a", "ab", 12, None, {"x": [1]}]},
        "n": {"type": "number", "minimum": -2.5, "exclusiveMaximum": 120},
        "code": {"type": "string", "pattern": "^[a-c]{2}-\\d+$"},
        "when": {"type": "string", "format": "date"},
        "either": {"anyOf": [{"type": "boolean"}, {"const": "true"}]},
        "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        "pair": {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": False, "minItems": 2},
    },
    "required": ["name", "kind", "list"],
    "additionalProperties": False,
}
OPEN_MAP = {
    "type": "object",
    "patternProperties": {"^a": {"type": "integer"}},
    "additionalProperties": {"type": "null"},
}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("schema", "n"), [(RECORD, 500), (TREE, 250), (OPEN_MAP, 150), ({"multipleOf": 7, "type": "integer"}, 100)]
)
def test_txt_23_t37_a_thousand_schema_samples(schema: dict[str, object], n: int, repeats: Repeats) -> None:
    n = repeats(n)
    program = COMPILER.compile(_schema(schema))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    n_finished = 0
    for seed in range(n):
        text, finished = sample(program, TOKENIZER, seed, 250)
        if finished:
            n_finished += 1
            validator.validate(json.loads(text))
    assert n_finished > n // 3


@pytest.mark.long
def test_txt_23_a_thousand_objects(repeats: Repeats) -> None:
    n = repeats(1000)
    program = COMPILER.compile(ANY_OBJECT)
    n_finished = 0
    for seed in range(n):
        text, finished = sample(program, TOKENIZER, seed, 50)
        assert text.startswith("{")
        if finished:
            n_finished += 1
            assert isinstance(json.loads(text), dict)
    assert n_finished > 0.3 * n


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "pattern", [r"(ab|b)+[0-9]{2}", r"\d{4}-\d{2}-\d{2}( true)?", r"[^ab\n]*é?", r"(?i:abc)+|x/y\"", r"(a+)+b"]
)
def test_txt_23_t40_a_thousand_regex_samples(pattern: str, repeats: Repeats) -> None:
    program = COMPILER.compile(_regex(pattern))
    for seed in range(repeats(200)):
        text, finished = sample(program, TOKENIZER, seed, 60)
        assert not finished or re.fullmatch(pattern, text), text


def _is_list(text: str) -> bool:
    """Accepts item ("," item)*, where item is letters, "(" list ")" or nothing. Written without a grammar."""
    depth = 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0 or not (char in "()," or char.islower()):
            return False
    return depth == 0 and not re.search(r"\)[a-z(]|[a-z]\(", text)


def test_txt_23_t42_a_thousand_gbnf_samples(repeats: Repeats) -> None:
    nested = COMPILER.compile(_gbnf('root ::= item ("," item)*\nitem ::= [a-z]* | "(" root ")"'))
    left = COMPILER.compile(_gbnf('# left recursion\nroot ::= root "+" n |\n  n\nn ::= "0" | [1-9] [0-9]{0,2}\n'))
    for seed in range(repeats(500)):
        text, finished = sample(nested, TOKENIZER, seed, 40)
        assert not finished or _is_list(text), text
        text, finished = sample(left, TOKENIZER, seed, 40)
        assert not finished or re.fullmatch(r"(0|[1-9]\d{0,2})(\+(0|[1-9]\d{0,2}))*", text), text


@pytest.mark.long
def test_txt_23_t43_a_thousand_choices() -> None:
    choices = ("a", "ab", "true", "tr", 'x"/é\n', "a")
    program = COMPILER.compile(_choices(*choices))
    drawn = {sample(program, TOKENIZER, seed, 20) for seed in range(1000)}
    finished = {text for text, is_finished in drawn if is_finished}
    assert finished == set(choices), "one that is a prefix of another is reachable, and so is the other"


@pytest.mark.parametrize(
    ("constraint", "member"),
    [
        (_regex("(ab|b)*c?"), lambda s: re.fullmatch("(ab|b)*c?", s)),
        (_regex("a{2,3}|b"), lambda s: re.fullmatch("a{2,3}|b", s)),
        (_choices("a", "ab", "abc", "cab"), lambda s: s in ("a", "ab", "abc", "cab")),
        # A greedy longest-token match would lose "ab" here.
        (_gbnf('root ::= "a" "b" | "ab" "c"'), lambda s: s in ("ab", "abc")),
        (
            _gbnf('root ::= "a" root "b" | "ab" "c" | ""'),
            lambda s: (
                re.sub("c", "", s) == "a" * s.count("a") + "b" * s.count("b")
                and s.count("a") == s.count("b")
                and (("c" not in s) or re.fullmatch(r"(a+)bc(b*)", s) is not None)
            ),
        ),
        (_gbnf('root ::= x*\nx ::= "ab" | "a" | root "c"'), lambda s: re.fullmatch("(ab|a|c)*", s)),
        (
            _gbnf('root ::= [^a-b\\n] [a-b]? | p\np ::= "a" p "a" | "b" p "b" | "a" | "b" | ""'),
            lambda s: (s == s[::-1] and "c" not in s) or re.fullmatch("c[ab]?", s),
        ),
        (_gbnf('root ::= ("a" | "b" "c"){1,2} "c"{2}'), lambda s: re.fullmatch("(a|bc){1,2}cc", s)),
    ],
)
def test_txt_23_masks_allow_exactly_the_language(constraint: ConstraintSpec, member: Callable[[str], object]) -> None:
    found = language(COMPILER.compile(constraint), b"abc", 6)
    expected = {
        "".join(chars).encode()
        for n in range(7)
        for chars in itertools.product("abc", repeat=n)
        if member("".join(chars))
    }
    assert found == expected


def test_txt_20_the_mask_holds_every_token_that_can_go_on() -> None:
    """The mask has every spelling of a text, and no special token except ends."""
    state = COMPILER.compile(_regex("true|ab")).start()
    pieces = {TOKENIZER.token_bytes(i) for i in allowed_ids(state)}
    assert pieces == {b"t", b"tr", b"tru", b"true", b"a", b"ab"}
    assert state.accept(ord("t"))
    assert [TOKENIZER.token_bytes(i) for i in allowed_ids(state)] == [b"r"]


def test_masks_are_as_wide_as_the_model_and_end_bits_are_all_set() -> None:
    state = COMPILER.compile(_regex("a*")).start()
    assert len(state.mask()) == 4 * ((V + 31) // 32)
    assert len(ENDS) == 2
    assert set(allowed_ids(state)) == {ord("a"), *ENDS}
    assert allowed_ids(COMPILER.compile(_regex("a")).start()) == [ord("a")]


def test_txt_23_t48_nothing_but_the_end_is_possible() -> None:
    for constraint, text in ((_regex("ab"), b"ab"), (_choices("a"), b"a"), (_schema({"type": "object"}), b"{}")):
        state = COMPILER.compile(constraint).start()
        for byte in text:
            assert not state.only_end_is_possible
            assert state.accept(byte)
        assert state.only_end_is_possible and state.may_end
        assert allowed_ids(state) == ENDS
    state = COMPILER.compile(_regex("a?")).start()
    assert state.may_end and not state.only_end_is_possible


def test_refused_tokens_change_nothing() -> None:
    state = COMPILER.compile(_regex("ab?")).start()
    before = allowed_ids(state)
    for token in (ord("b"), ENDS[0], V - 1, TOKENIZER.vocab_size, ENDS[0] + 1):
        assert not state.accept(token)
        assert allowed_ids(state) == before and state.n_accepted == 0
    assert state.accept(ord("a")) and not state.accept(ord("a")) and state.accept(ord("b"))


def test_going_on_after_the_end_allows_only_ends() -> None:
    state = COMPILER.compile(_regex("a")).start()
    assert state.accept(ord("a")) and state.accept(ENDS[1]) and state.has_ended
    assert allowed_ids(state) == ENDS
    assert not state.accept(ord("a")) and state.accept(ENDS[0])
    state.rollback(2)
    assert not state.has_ended and state.n_accepted == 1 and state.only_end_is_possible


@pytest.mark.parametrize("constraint", [_regex("(ab|b)+c"), _gbnf('root ::= "(" root ")" | "a"'), _schema(RECORD)])
def test_ses_30_rollback_and_fork_equal_never_having_gone_on(constraint: ConstraintSpec) -> None:
    program = COMPILER.compile(constraint)
    state = program.start()
    taken: list[int] = []
    masks = [allowed_ids(state)]
    for step in range(14):
        choices = [i for i in masks[-1] if i not in program.ends]
        if not choices:
            break
        taken.append(choices[(step * 7) % len(choices)])
        assert state.accept(taken[-1])
        masks.append(allowed_ids(state))
    for back in range(len(taken) + 1):
        copy = state.fork()
        copy.rollback(back)
        kept = len(taken) - back
        assert allowed_ids(copy) == masks[kept] and copy.n_accepted == kept
        for token, mask in zip(taken[kept:], masks[kept + 1 :], strict=True):
            assert copy.accept(token)
            assert allowed_ids(copy) == mask
    assert allowed_ids(state) == masks[-1]
    with pytest.raises(ValueError, match="rollback"):
        state.rollback(len(taken) + 1)


def test_two_sequences_of_one_program_are_independent() -> None:
    program = COMPILER.compile(_regex("(ab|b)+[0-9]"))
    one, two = program.start(), program.start()
    assert one.accept(ord("b"))
    expected = allowed_ids(one)
    assert two.accept(ord("a"))
    assert [TOKENIZER.token_bytes(i) for i in allowed_ids(two)] == [b"b"]
    assert allowed_ids(one) == expected


def test_t50_a_byte_that_no_token_makes_leaves_no_candidate() -> None:
    metadata = sentencepiece([("a", -1.0), ("b", -2.0), ("▁", -3.0)])
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list) and isinstance(types, list)
    for token in range(3, 259):
        tokens[token], types[token] = f"unused{token}", 5
    tokenizer = Tokenizer.from_metadata(metadata)
    state = ConstraintCompiler(tokenizer, vocab_size=300).compile(_regex("a[q]|b")).start()
    assert allowed_ids(state) == [259, 260]
    assert state.accept(259)
    assert allowed_ids(state) == []
    assert not state.may_end and not state.only_end_is_possible
    state.rollback(1)
    assert allowed_ids(state) == [259, 260]


def test_t45_the_cache_is_bounded_and_compiles_once() -> None:
    limits = TextLimits(cache_bytes=2 << 20)
    compiler = ConstraintCompiler(TOKENIZER, vocab_size=V, limits=limits)
    first = compiler.compile(_regex("a0"))
    assert compiler.compile(_regex("a0")) is first
    for i in range(60):
        compiler.compile(_schema({"type": "object", "properties": {f"p{i}": {"type": "integer"}}}))
        assert compiler.n_bytes <= limits.cache_bytes
    assert compiler.find(_regex("a0")) is first, "what is in use is not compiled twice"
    assert allowed_ids(first.start()) == [ord("a")], "an evicted program that is in use stays whole"
    del first
    assert compiler.find(_regex("a0")) is None
    newest = _schema({"type": "object", "properties": {"p59": {"type": "integer"}}})
    assert compiler.find(newest) is compiler.compile(newest)


def test_txt_33_t45_the_cache_drops_what_was_used_least_recently() -> None:
    first, second, third = (_regex(f"[{letter}]{{4}}") for letter in "abc")
    sizes = ConstraintCompiler(TOKENIZER, vocab_size=V)
    sizes.compile(first)
    limits = TextLimits(cache_bytes=int(2.5 * sizes.n_bytes))
    compiler = ConstraintCompiler(TOKENIZER, vocab_size=V, limits=limits)
    program = compiler.compile(first)
    compiler.compile(second)
    assert compiler.find(first) is program
    del program  # the cache alone keeps it
    compiler.compile(third)
    assert [compiler.find(each) is not None for each in (first, second, third)] == [True, False, True]
    compiler.compile(first)
    compiler.compile(second)
    assert [compiler.find(each) is not None for each in (first, second, third)] == [True, True, False]


def test_the_model_s_own_ends_take_the_place_of_the_tokenizer_s() -> None:
    compiler = ConstraintCompiler(TOKENIZER, vocab_size=V, eos_ids=[ENDS[1], ord("z")])
    state = compiler.compile(_regex("a*z?")).start()
    assert set(allowed_ids(state)) == {ord("a"), ord("z"), ENDS[1]}
    assert state.accept(ord("z")) and state.has_ended


def test_a_vocabulary_without_an_end_takes_no_constraints() -> None:
    metadata = byte_level(control=["<x>"])
    del metadata["tokenizer.ggml.eos_token_id"]
    with pytest.raises(FieldInvalid, match="end-of-sequence"):
        ConstraintCompiler(Tokenizer.from_metadata(metadata), vocab_size=257)


def test_txt_24_the_kinds_are_those_of_the_api() -> None:
    assert {kind.value for kind in ConstraintKind} == {"json_schema", "regex", "gbnf", "choices", "json_object"}
