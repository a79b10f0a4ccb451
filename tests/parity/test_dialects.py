"""What transformers renders of a conversation with a call, imp renders too, and its dialect reads the call back."""

from __future__ import annotations

import json

import pytest

from imp_service.config.config import build
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatMessage, ChatPrompt
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined
from imp_service.text.channels.tools import read_tools
from support.tool_templates import ROWS

chat_templates = pytest.importorskip("transformers.utils.chat_template_utils", reason="transformers is not installed")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "platform": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": SCHEMA}}]
CALL = {"name": "find", "arguments": {"city": "Z\u00fcrich", "platform": 3}}
CALLS = [{"id": "b1b2c3d4e", "type": "function", "function": CALL}]
TALK = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "", "tool_calls": CALLS}]
PROMPT = ChatPrompt(
    (ChatMessage("user", "Where?"), ChatMessage("assistant", "", tool_calls_json=json.dumps(CALLS))),
    json.dumps(TOOLS),
    add_generation_prompt=False,
)


@pytest.mark.parametrize("row", ROWS)
def test_chn_6_the_found_dialect_reads_what_transformers_renders(row: str) -> None:
    name, metadata = ROWS[row]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    side = TextSide(metadata, build({}), len(tokens))
    specials = {"bos_token": tokens[side.tokenizer.bos_id or 0], "eos_token": tokens[-1]}
    source = metadata["tokenizer.chat_template"]
    rendered, _ = chat_templates.render_jinja_template([TALK], tools=TOOLS, chat_template=source, **specials)
    assert side.render(PROMPT).text == rendered[0]
    assert side.dialect.name == name
    # The call without the turn's header, as the model writes it.
    begins = {"llama3": "{", "mistral": "[TOOL_CALLS]"}.get(name, "<tool_call>")
    answer = rendered[0].rpartition("Where?")[2]
    ids = side.tokenizer.encode(answer[answer.index(begins) :], add_special_tokens=False, parse_special_tokens=True)
    stream = ChannelStream(side.channel_table, ParsePlan(side.dialect, False, read_tools(json.dumps(TOOLS)), (1,)))
    told = joined([*(stream.feed(token) for token in ids), stream.finish()])
    assert [(call.name, json.loads(call.arguments)) for call in told.tool_calls] == [tuple(CALL.values())]
    assert told.text.strip() == ""
