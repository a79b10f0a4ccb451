"""Forced calls in vocabularies with each family's control tokens: whatever the mask allows is a valid call."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from imp_service import ChatMessage, ChatPrompt, GenerationRequest
from imp_service.config import load as load_config
from imp_service.generation.text_side import TextSide
from imp_service.generation.tools import resolve_tools
from imp_service.text.channels.call_constraint import CallConstraint
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined
from imp_service.text.channels.find_dialect import opens_reasoning
from imp_service.text.channels.tools import read_tools
from support.tool_templates import ROWS

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


@pytest.mark.sweep(quick=lambda row, n: n == 5)
@pytest.mark.parametrize("n", [5, 400])
@pytest.mark.parametrize("row", ROWS)
def test_tol_1_whatever_the_mask_allows_is_a_valid_call(row: str, n: int) -> None:
    metadata = ROWS[row][1]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    side, rng, n_whole = TextSide(metadata, load_config(None, []).settings, len(tokens)), random.Random(row), 0
    prompt = ChatPrompt((ChatMessage("user", "x"),), json.dumps(TOOLS))
    constraint = resolve_tools(GenerationRequest(prompt, tool_choice="required"), side).constraint
    assert isinstance(constraint, CallConstraint)
    before = side.render(prompt).text
    plan = ParsePlan(side.dialect, opens_reasoning(side.dialect, before), read_tools(prompt.tools_json), (1,))
    for _ in range(n):
        ids = walk(side, len(tokens), constraint, rng)
        if ids is None:
            continue
        stream = ChannelStream(side.channel_table, plan)
        found = joined([stream.feed_all(ids), stream.finish()])
        assert found.tool_calls and not found.text.strip()
        for call in found.tool_calls:
            schema = TOOLS[int(call.name.removeprefix("do_"))]["parameters"]
            jsonschema.validate(json.loads(call.arguments), schema)
        n_whole += 1
    assert n_whole > n / 2
