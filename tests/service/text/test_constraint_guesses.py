"""Guesses of a constraint: they are allowed, have the masks of single steps, and leave the state as it is."""

from __future__ import annotations

import json
import random

import pytest

from imp_service.text import (
    ConstraintCompiler,
    ConstraintKind,
    ConstraintProgram,
    ConstraintSpec,
    ConstraintState,
    FieldInvalid,
    Tokenizer,
)
from support.text.constraint_sampling import allowed_ids
from support.text.forced_call import constraint_of
from support.text.tiny_vocabularies import byte_level, sentencepiece

MERGES = [("a", "b"), ("t", "r"), ("tr", "u"), ("tru", "e"), ('"', ":"), ("{", '"'), ("n", "a"), ("m", "e")]
TOKENIZER = Tokenizer.from_metadata(byte_level(merges=MERGES))
COMPILER = ConstraintCompiler(TOKENIZER, vocab_size=TOKENIZER.vocab_size + 70)
MOST = 8
RECORD = {
    "type": "object",
    "properties": {"name": {"enum": ["alice", "albert"]}, "n": {"type": "integer"}, "done": {"const": True}},
    "required": ["name", "n", "done"],
    "additionalProperties": False,
}
KINDS = {
    "json_schema": ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(RECORD)),
    "json_object": ConstraintSpec(ConstraintKind.JSON_OBJECT),
    "regex": ConstraintSpec(ConstraintKind.REGEX, "(name: [a-c]{1,4}; ){1,3}true"),
    "choices": ConstraintSpec(ConstraintKind.CHOICES, choices=("yes", "no", "now or never", "não")),
    "gbnf": ConstraintSpec(ConstraintKind.GBNF, 'root ::= "<" name ">"\nname ::= "name" | "game" | "(" name ")"'),
}


def compiled(kind: str) -> tuple[ConstraintProgram, Tokenizer]:
    if kind == "call":
        side, constraint = constraint_of("hermes", RECORD)
        return side.compile(constraint), side.tokenizer
    return COMPILER.compile(KINDS[kind]), TOKENIZER


def walk(state: ConstraintState, rng: random.Random, most: int = 120) -> list[tuple[bytes, int]]:
    """Accepts random allowed tokens. Returns each with its mask."""
    seen: list[tuple[bytes, int]] = []
    while not state.only_end_is_possible and len(seen) < most:
        token = rng.choice(allowed_ids(state))
        seen.append((state.mask(), token))
        assert state.accept(token)
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [*KINDS, "call"])
def test_spc_17_guesses_have_the_masks_of_single_steps_and_change_nothing(kind: str) -> None:
    program, tokenizer = compiled(kind)
    n_guesses = 0
    for seed in range(30):
        expected = walk(program.start(), random.Random(seed))
        state, guessing = program.start(), random.Random(-seed)
        for mask, token in expected:
            # Some of the right tokens, then others: the guesses end where the constraint does not allow one.
            place = state.n_accepted
            right = [each for _, each in expected[place : place + guessing.randint(0, 5)]]
            proposal = [*right, *(guessing.randrange(tokenizer.vocab_size) for _ in range(guessing.randint(0, 4)))]
            ahead = state.ahead(proposal, guessing.randint(0, MOST))
            assert state.mask() == mask and state.n_accepted == place
            n_guesses += len(ahead.tokens)
            assert len(ahead.tokens) == len(ahead.masks) + ahead.ends <= MOST
            step = state.fork()
            for guess, behind in zip(ahead.tokens, [*ahead.masks, b""], strict=False):
                assert step.accept(guess) and step.only_end_is_possible == (not behind)
                assert not behind or step.mask() == behind
            assert state.accept(token)
        assert state.n_accepted == len(expected) > 0
    assert n_guesses > 100


def test_spc_17_the_longer_of_proposal_and_forced_text_is_guessed() -> None:
    state = COMPILER.compile(KINDS["json_schema"]).start()
    for token in TOKENIZER.encode('{"', add_special_tokens=False):
        assert state.accept(token)
    forced = state.ahead([], MOST)
    assert forced.is_forced
    assert forced.tokens == TOKENIZER.encode('name": "al', add_special_tokens=False)[:MOST]
    one_byte = [TOKENIZER.encode(char, add_special_tokens=False)[0] for char in 'name": "al']
    proposed = state.ahead(one_byte, MOST)
    assert not proposed.is_forced and proposed.tokens == one_byte[:MOST]
    cut = state.ahead(one_byte[:1], MOST)
    assert cut == forced
    assert len(state.ahead(one_byte, 2).tokens) == 2
    assert not state.ahead(one_byte, 0).tokens


@pytest.mark.parametrize("style", ['{"a":1,"b":2,"c":3}', '{"a": 1, "b": 2, "c": 3}', '{"a" : 1, "b" : 2, "c" : 3}',
                                   '{\n  "a": 1,\n  "b": 2,\n  "c": 3\n}'])  # fmt: skip
def test_spc_18_blanks_are_guessed_as_they_were_written_before(style: str) -> None:
    """JSON allows them almost everywhere, so that the constraint alone forces little more than the names."""
    properties = {name: {"enum": [n + 1]} for n, name in enumerate("abc")}
    schema = {"type": "object", "properties": properties, "required": list("abc"), "additionalProperties": False}
    state = COMPILER.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))).start()
    begin, end = style.index('"b"'), style.index("3") - 1
    for token in TOKENIZER.encode(style[:begin], add_special_tokens=False):
        assert state.accept(token)
    guessed = b""
    while len(guessed) < end - begin and (ahead := state.ahead([], MOST)).tokens:
        guessed += b"".join(map(TOKENIZER.token_bytes, ahead.tokens))
        assert all(state.accept(token) for token in ahead.tokens)
    assert guessed.startswith(style[begin:end].encode())


def test_spc_18_forced_control_tokens_and_parts_of_characters_are_guessed() -> None:
    side, constraint = constraint_of("hermes", RECORD)
    state, text = side.compile(constraint).start(), b""
    n_guessed = 0
    while not state.only_end_is_possible and state.n_accepted < 200:
        ahead = state.ahead([], MOST)
        tokens = ahead.tokens or allowed_ids(state)[-1:]
        n_guessed += len(ahead.tokens)
        for token in tokens:
            assert state.accept(token)
        text += side.tokenizer.decode_bytes(tokens, special_tokens=True)
    assert n_guessed > 20 and b'"arguments"' in text

    choice = COMPILER.compile(ConstraintSpec(ConstraintKind.CHOICES, choices=("não",))).start()
    whole = choice.ahead([], MOST)
    assert whole.ends
    first = next(i for i in range(TOKENIZER.vocab_size) if TOKENIZER.token_bytes(i) == "ã".encode()[:1])
    for token in (*TOKENIZER.encode("n", add_special_tokens=False), first):
        assert choice.accept(token)
    assert not choice.ahead([], MOST).tokens, "the rest of a character is no text"


def test_spc_18_no_space_is_put_before_forced_text() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece([("a", -1.0), ("b", -2.0), ("▁", -3.0), ("▁a", -0.5)]))
    compiler = ConstraintCompiler(tokenizer, vocab_size=tokenizer.vocab_size)
    state = compiler.compile(ConstraintSpec(ConstraintKind.CHOICES, choices=("abba",))).start()
    ahead = state.ahead([], MOST)
    assert ahead.ends
    assert b"".join(map(tokenizer.token_bytes, ahead.tokens)) == b"abba"


def test_spc_17_a_constraint_that_fails_on_a_guess_does_not_fail_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence may never come to that place. The guesses end before it."""
    state = COMPILER.compile(KINDS["regex"]).start()
    text = TOKENIZER.encode("name: abc; true", add_special_tokens=False)
    compute = ConstraintState._compute_mask

    def failing(self: ConstraintState) -> bytes:
        if self.n_accepted > 3:
            raise FieldInvalid("constraint", "needs more memory or time than one sequence may use")
        return compute(self)

    before = state.mask()
    with monkeypatch.context() as patched:
        patched.setattr(ConstraintState, "_compute_mask", failing)
        ahead = state.ahead(text, MOST)
    assert ahead.tokens == text[:3] and len(ahead.masks) == 3
    assert state.mask() == before and state.n_accepted == 0
    assert all(state.accept(token) for token in text) and state.may_end


@pytest.mark.long
def test_spc_17_guesses_do_not_spend_a_lexer_that_a_sequence_has_alone() -> None:
    """Guesses may wear out the lexer that sequences share, which is then replaced. They do not end the sequence."""
    program = COMPILER.compile(
        ConstraintSpec(ConstraintKind.REGEX, "(.*a.{100}|.*b.{99}|.*c.{98}|.*d.{97}|.*e.{93}|.*f.{91}|.*g.{70})")
    )
    rng, state, shared = random.Random(1), program.start(), set[int]()
    with pytest.raises(FieldInvalid, match="needs more memory or time"):
        for _ in range(3000):
            shared.add(id(program.shared()))
            was_alone = state._is_alone
            ahead = state.ahead(rng.choices(b"abcdefg", k=MOST), MOST)
            assert not (was_alone and ahead.tokens)
            assert state.accept(rng.choice(b"abcdefg"))
            state.mask()
    assert state._is_alone and len(shared) > 2
