"""Detects the dialect of a model: renders a conversation with a call, and finds the row that parses the call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from imp_service.api.chat_prompt import ChatMessage, ChatPrompt
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined, visible
from imp_service.text.channels.dialect import Dialect
from imp_service.text.channels.dialects import DIALECTS, PLAIN
from imp_service.text.channels.tools import read_tools
from imp_service.text.errors import TemplateInvalid, TextError
from imp_service.text.tokens.tokenizer import Tokenizer

OVERRIDE = "model.overrides.dialect"
Render = Callable[[ChatPrompt], str]

_NAME = "find_station"
_ARGUMENTS = {"city": 'Z\u00fcrich "HB"', "platform": 7, "is_open": True, "lines": ["S3", "S9"]}
_TYPES = {"city": "string", "platform": "integer", "is_open": "boolean", "lines": "array"}
_SCHEMA = {"type": "object", "properties": {name: {"type": kind} for name, kind in _TYPES.items()}}
_FUNCTION = {"name": _NAME, "description": "Finds a station.", "parameters": _SCHEMA}
TOOLS_JSON = json.dumps([{"type": "function", "function": _FUNCTION}])
_ASKED = "Where do I change trains?"
_QUESTION = ChatMessage("user", _ASKED)


def find_dialect(render: Render, tokenizer: Tokenizer, named: Dialect | None = None) -> Dialect:
    """The dialect of a model's chat template. `plain` if no row parses the call that the template wrote. The first form
    of the result is the one that the template writes. If the settings name a row, the result is that row.
    """
    rows = [*DIALECTS.values()] if named is None else [named]
    for call_id in dict.fromkeys(row.ids.example for row in rows):
        try:
            before, written = _rendered_call(render, call_id)
            ids = tokenizer.encode(written, add_special_tokens=False, parse_special_tokens=True)
        except TextError:
            continue
        for candidate in _candidates(row for row in rows if row.ids.example == call_id):
            if _reads_back(candidate, before, ids, tokenizer):
                return DIALECTS[candidate.name].preferring(candidate.forms[0])
    return PLAIN if named is None else named


def named_dialect(name: str) -> Dialect:
    """The row that the settings name. Raises TemplateInvalid if it does not exist."""
    if name not in DIALECTS:
        raise TemplateInvalid(OVERRIDE, f"{name}: no such dialect, known: {', '.join(DIALECTS)}")
    return DIALECTS[name]


def shows_tools(render: Render) -> bool:
    """Whether a chat template shows the model its tools."""
    return _shows(render, ChatPrompt((_QUESTION,), TOOLS_JSON), _NAME)


def shows_system(render: Render) -> bool:
    """Whether a chat template shows the model a system message."""
    return _shows(render, ChatPrompt((ChatMessage("system", _NAME), _QUESTION)), _NAME)


def needs_parts(render: Render, render_parts: Render) -> bool:
    """Whether a chat template drops a content that is a text, and shows the same content as a list of parts."""
    asked = ChatPrompt((ChatMessage("user", _NAME),))
    return not _shows(render, asked, _NAME) and _shows(render_parts, asked, _NAME)


def _shows(render: Render, chat: ChatPrompt, text: str) -> bool:
    try:
        return text in render(chat)
    except TextError:
        return False


def opens_reasoning(dialect: Dialect, prompt: str) -> bool:
    """Whether the prompt ends with an open reasoning block."""
    return dialect.reasoning is not None and prompt.rstrip().endswith(dialect.reasoning.begin.text)


def _rendered_call(render: Render, call_id: str) -> tuple[str, str]:
    """The prompt before the assistant's call, and what the template writes from there on.

    The prompt may differ from the beginning of the whole conversation: some templates put tools into the last message.
    Then the second text is everything after the question, including the header of the assistant's turn.
    """
    call = {"id": call_id, "type": "function", "function": {"name": _NAME, "arguments": _ARGUMENTS}}
    answer = ChatMessage("assistant", "", tool_calls_json=json.dumps([call]))
    prompt = render(ChatPrompt((_QUESTION,), TOOLS_JSON))
    whole = render(ChatPrompt((_QUESTION, answer), TOOLS_JSON, add_generation_prompt=False))
    if whole.startswith(prompt):
        return prompt, whole[len(prompt) :]
    before, _, written = whole.rpartition(_ASKED)
    return before, written


def _candidates(rows: Iterable[Dialect]) -> Iterator[Dialect]:
    """The rows, once for each form of calls, with only that form."""
    for row in rows:
        for form in row.forms:
            yield replace(row, forms=(form,))


def _reads_back(dialect: Dialect, before: str, ids: list[int], tokenizer: Tokenizer) -> bool:
    plan = ParsePlan(dialect, opens_reasoning(dialect, before), read_tools(TOOLS_JSON), (0,))
    stream = ChannelStream(visible(tokenizer.table, dialect, tokenizer.eos_ids), plan)
    found = joined([stream.feed_all(ids), stream.finish()])
    if len(found.tool_calls) != 1 or _NAME in found.text + found.reasoning:
        return False
    call = found.tool_calls[0]
    try:
        return call.name == _NAME and json.loads(call.arguments) == _ARGUMENTS
    except ValueError:
        return False
