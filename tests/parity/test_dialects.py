"""imp renders a conversation with a tool call as transformers does, and its dialect parses the call."""

from __future__ import annotations

import json

import pytest

from imp_service.config.config import build
from imp_service.generation.text_side import TextSide
from imp_service.text import ChatMessage, ChatPrompt
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined
from imp_service.text.channels.tools import read_tools
from support.text.dialect_texts import Said, message_of
from support.text.family_templates import FAMILIES
from support.text.tool_templates import ROWS

chat_templates = pytest.importorskip("transformers.utils.chat_template_utils", reason="transformers is not installed")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "platform": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": SCHEMA}}]
CALL = ("find", {"city": "Z\u00fcrich", "platform": 3})
# The text before the call in an answer.
BEGINS = {"llama3": "{", "mistral": "[TOOL_CALLS]", "mistral-marked": "[TOOL_CALLS]"}


@pytest.mark.few(6)
@pytest.mark.parametrize("row", ROWS)
def test_chn_6_the_found_dialect_reads_what_transformers_renders(row: str) -> None:
    name, metadata = ROWS[row]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    side = TextSide(metadata, build({}), len(tokens))
    specials = {"bos_token": tokens[side.tokenizer.bos_id or 0], "eos_token": tokens[-1]}
    source = metadata["tokenizer.chat_template"]
    answer = message_of(Said(calls=[CALL]), FAMILIES.get(row))
    talk = [{"role": "user", "content": "Where?"}, answer]
    prompt = ChatPrompt(
        (ChatMessage("user", "Where?"), ChatMessage("assistant", "", tool_calls_json=json.dumps(answer["tool_calls"]))),
        json.dumps(TOOLS),
        add_generation_prompt=False,
    )
    rendered, _ = chat_templates.render_jinja_template([talk], tools=TOOLS, chat_template=source, **specials)
    assert side.render(prompt).text == rendered[0]
    assert side.dialect.name == name
    # The model writes the call without the header of the turn.
    turn = rendered[0].rpartition("Where?")[2]
    if row in FAMILIES:
        written = turn.partition(FAMILIES[row].begin)[2].removesuffix(FAMILIES[row].end)
    else:
        written = turn[turn.index(BEGINS.get(row, "<tool_call>")) :]
    ids = side.tokenizer.encode(written, add_special_tokens=False, parse_special_tokens=True)
    stream = ChannelStream(side.channel_table, ParsePlan(side.dialect, False, read_tools(json.dumps(TOOLS)), (1,)))
    parsed = joined([*(stream.feed(token) for token in ids), stream.finish()])
    assert [(call.name, json.loads(call.arguments)) for call in parsed.tool_calls] == [CALL]
    assert parsed.text.strip() == ""
