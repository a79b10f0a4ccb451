"""The constraint of one forced call in the vocabulary of a row of `tool_templates`."""

from __future__ import annotations

import json

from imp_service import ChatMessage, ChatPrompt, GenerationRequest
from imp_service.config import read_settings
from imp_service.generation.text_side import TextSide
from imp_service.generation.tools import resolve_tools
from imp_service.text.channels.call_constraint import CallConstraint
from support.text.tool_templates import ROWS


def constraint_of(row: str, schema: object, *, is_strict: bool = False) -> tuple[TextSide, CallConstraint]:
    """Returns the text side and the constraint of a call of `f` with this schema."""
    metadata = ROWS[row][1]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    side = TextSide(metadata, read_settings(None, []).settings, len(tokens))
    function = {"name": "f", "parameters": schema, "strict": is_strict}
    tools = json.dumps([{"type": "function", "function": function}])
    prompt = ChatPrompt((ChatMessage("user", "x"),), tools)
    constraint = resolve_tools(GenerationRequest(prompt, tool_choice="function:f"), side).constraint
    assert isinstance(constraint, CallConstraint)
    return side, constraint


def allows(row: str, schema: object, call: str) -> bool:
    """Returns whether the constraint allows this output."""
    side, constraint = constraint_of(row, schema)
    state = side.compile(constraint).start()
    ids = side.tokenizer.encode(call, add_special_tokens=False, parse_special_tokens=True)
    return all(state.accept(token) for token in ids) and state.may_end


def with_value(value: object) -> dict[str, object]:
    """Returns the schema of an object with one required value."""
    return {"type": "object", "properties": {"v": value}, "required": ["v"]}
