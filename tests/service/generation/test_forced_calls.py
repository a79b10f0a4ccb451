"""Forced calls in vocabularies with each family's control tokens: whatever the mask allows is a valid call."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from imp_service import ChatMessage, ChatPrompt, GenerationRequest
from imp_service.config import read_settings
from imp_service.generation.text_side import TextSide
from imp_service.generation.tools import resolve_tools
from imp_service.text import ConstraintKind, ConstraintSpec
from imp_service.text.channels.call_constraint import CallConstraint
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined
from imp_service.text.channels.find_dialect import opens_reasoning
from imp_service.text.channels.tools import read_tools
from support.run.release_run import repetitions
from support.text.tool_templates import ROWS

SCHEMAS: list[dict[str, Any]] = [
    {"text": {"type": "string", "maxLength": 5}, "n": {"type": "integer", "minimum": -3, "maximum": 40}},
    {"list": {"type": "array", "items": {"enum": ["a", "b c"]}, "minItems": 1, "maxItems": 3}, "on": {"type": "null"}},
    {"inner": {"type": "object", "properties": {"k": {"type": "boolean"}}, "additionalProperties": False}},
    {"either": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}},
]  # fmt: skip
TOOLS = [
    {
        "name": f"do_{n}",
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [next(iter(properties))],
            "additionalProperties": False,
        },
    }
    for n, properties in enumerate(SCHEMAS)
]
# Enough for a call in single bytes, unless a walk writes endless white space.
MOST_TOKENS = 900
N_WALKS = repetitions(400, 80)


# A constraint on content, a text that it allows, and one that it does not.
CONTENTS = [
    (ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"type": "object"}'), '{"name": "do_1"}', "[1]"),
    (ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"type": "array"}'), '[1, "TOOL"]', "{}"),
    (ConstraintSpec(ConstraintKind.JSON_OBJECT), '{"name": 1}', "[1]"),
    (ConstraintSpec(ConstraintKind.REGEX, "[a-z]{3}"), "abc", "ab1"),
    (ConstraintSpec(ConstraintKind.CHOICES, choices=("yes", "no")), "no", "maybe"),
    (ConstraintSpec(ConstraintKind.GBNF, 'root ::= "{" inner\ninner ::= "a" inner "b" | ""'), "{aabb", "{aab"),
]


def side_and_vocabulary(row: str) -> tuple[TextSide, int]:
    metadata = ROWS[row][1]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    return TextSide(metadata, read_settings(None, []).settings, len(tokens)), len(tokens)


def admits(side: TextSide, constraint: CallConstraint, ids: Sequence[int]) -> bool:
    """Whether a constraint allows a whole output."""
    state = side.compile(constraint).start()
    return all(state.accept(token) for token in ids) and state.may_end


def walk(side: TextSide, n_tokens: int, constraint: CallConstraint, rng: random.Random) -> list[int] | None:
    """Draws random tokens that the constraint allows. Returns None if they do not end."""
    state, ids = side.compile(constraint).start(), list[int]()
    while len(ids) < MOST_TOKENS:
        mask = state.mask()
        allowed = [token for token in range(n_tokens) if mask[token // 8] >> token % 8 & 1]
        if set(allowed) & side.tokenizer.eos_ids:
            return ids
        # Framing tokens are rare among bytes, and white space can go on long.
        specials = [token for token in allowed if token >= 256]
        marks = [token for token in allowed if token < 128 and chr(token).isprintable() and token != 32]
        ids.append(rng.choice(specials if specials and rng.random() < 0.3 else marks or allowed))
        assert state.accept(ids[-1])
    return None


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_tol_1_whatever_the_mask_allows_is_a_valid_call(row: str) -> None:
    side, n_tokens = side_and_vocabulary(row)
    rng, n_whole = random.Random(row), 0
    prompt = ChatPrompt((ChatMessage("user", "x"),), json.dumps(TOOLS))
    constraint = resolve_tools(GenerationRequest(prompt, tool_choice="required"), side).constraint
    assert isinstance(constraint, CallConstraint)
    before = side.render(prompt).text
    plan = ParsePlan(side.dialect, opens_reasoning(side.dialect, before), read_tools(prompt.tools_json), (1,))
    for _ in range(N_WALKS):
        ids = walk(side, n_tokens, constraint, rng)
        if ids is None:
            continue
        stream = ChannelStream(side.channel_table, plan)
        found = joined([stream.feed_all(ids), stream.finish()])
        assert found.tool_calls and not found.text.strip()
        for call in found.tool_calls:
            schema = TOOLS[int(call.name.removeprefix("do_"))]["parameters"]
            jsonschema.validate(json.loads(call.arguments), schema)
        n_whole += 1
    assert n_whole > N_WALKS / 2


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_tol_4_with_auto_the_output_is_calls_or_content_that_matches(row: str) -> None:
    side, n_tokens = side_and_vocabulary(row)
    prompt, rng = ChatPrompt((ChatMessage("user", "x"),), json.dumps(TOOLS)), random.Random(row)
    forced = resolve_tools(GenerationRequest(prompt, tool_choice="required"), side).constraint
    assert isinstance(forced, CallConstraint)
    calls = [ids for ids in (walk(side, n_tokens, forced, rng) for _ in range(8)) if ids is not None]
    assert calls
    for content, good, bad in CONTENTS:
        request = GenerationRequest(prompt, constraint=content, tool_choice="auto")
        either = resolve_tools(request, side)
        assert isinstance(either.constraint, CallConstraint) and not either.tool_choice
        assert resolve_tools(either, side) == either
        assert resolve_tools(replace(request, tool_choice="required"), side).constraint == forced
        before = side.dialect.reasoning.end.text if either.constraint.in_reasoning and side.dialect.reasoning else ""
        texts = [
            side.tokenizer.encode(before + text, add_special_tokens=False, parse_special_tokens=True)
            for text in (good, bad)
        ]
        assert [admits(side, either.constraint, ids) for ids in (*texts, *calls)] == [True, False, *[True] * len(calls)]


def test_tol_4_references_in_the_schema_of_a_json_call_resolve() -> None:
    side, _ = side_and_vocabulary("llama3")
    tree = {
        "type": "object",
        "properties": {"t": {"$ref": "#"}, "n": {"$ref": "#/$defs/n"}},
        "additionalProperties": False,
    }
    tools = json.dumps([{"name": "f", "parameters": {**tree, "$defs": {"n": {"type": "integer"}}}}])
    prompt = ChatPrompt((ChatMessage("user", "x"),), tools)
    content = ConstraintSpec(ConstraintKind.CHOICES, choices=("no",))
    either = resolve_tools(GenerationRequest(prompt, constraint=content, tool_choice="auto"), side).constraint
    assert isinstance(either, CallConstraint)
    for arguments, is_valid in (('{"t": {"n": 1}}', True), ('{"t": {"n": "a"}}', False)):
        text = f'{{"name": "f", "parameters": {arguments}}}'
        assert admits(side, either, side.tokenizer.encode(text, add_special_tokens=False)) == is_valid
