"""Requests to real servers, directly and through a front."""

from __future__ import annotations

from typing import Any

from support.servers.messages_served import CHAT_TOOLS, TOOLS

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
ALONE = ("chunk.max_tokens=1",)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}},
    "required": ["city"],
    "additionalProperties": False,
}
MESSAGE = [{"role": "user", "content": "Tell a story 😀"}]
USAGE = {"stream_options": {"include_usage": True}}
SAMPLED = {"temperature": 1.2, "seed": 11}
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": MESSAGE, "max_tokens": 24, **USAGE, **SAMPLED}),
    "chat, n = 2": (CHAT, {"messages": MESSAGE, "max_tokens": 10, "n": 2, **USAGE, **SAMPLED}),
    "chat, tools": (
        CHAT,
        {"messages": MESSAGE, "max_tokens": 40, "tools": CHAT_TOOLS, "tool_choice": "required", **SAMPLED},
    ),
    "chat, schema": (CHAT, {"messages": MESSAGE, "max_tokens": 40, "response_format": SCHEMA_FORMAT, **SAMPLED}),
    "chat, logprobs": (CHAT, {"messages": MESSAGE, "max_tokens": 10, "logprobs": True, "top_logprobs": 2, **SAMPLED}),
    "completions": (COMPLETIONS, {"prompt": "Once", "max_tokens": 24, "stop": ["e t"], **USAGE, **SAMPLED}),
    "responses": (RESPONSES, {"input": "Tell a story", "max_output_tokens": 16, **SAMPLED}),
    "messages": (MESSAGES, {"messages": MESSAGE, "max_tokens": 16, **SAMPLED}),
    "messages, tools": (
        MESSAGES,
        {"messages": MESSAGE, "max_tokens": 40, "tools": TOOLS, "tool_choice": {"type": "any"}, **SAMPLED},
    ),
}
