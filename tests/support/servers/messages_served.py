"""Requests of Anthropic's API to a test server, and the client of its SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic

from support.calls.anthropic_types import built
from support.servers.http_served import HttpServed, serve_http

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: list[Any] = [
    {"name": "weather", "description": "Rain?", "input_schema": SCHEMA},
    {"name": "stop", "input_schema": NOTHING},
]
CHAT_TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Rain?", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop", "parameters": NOTHING}},
]
# What a greedy model says that is held to it: reasoning, a text and a call.
SPOKEN = (
    'root ::= "<think>\\nHm.\\n</think>\\n\\nYes: '
    '<tool_call>\\n{\\"name\\": \\"stop\\", \\"arguments\\": {}}\\n</tool_call>"'
)


def serve_template(folder: Path, template: str, *settings: str) -> Any:
    """Serves the built-in model with a chat template."""
    path = folder / "chat.jinja"
    path.write_text(template)
    return serve_http(f"model.overrides.chat_template={path}", *(settings or ("limits.max_context=512",)))


def client_of(http: HttpServed, **options: Any) -> anthropic.Anthropic:
    """Returns the client of Anthropic's SDK."""
    url = http.url.removesuffix("/v1")
    return anthropic.Anthropic(base_url=url, **{"api_key": "any", "max_retries": 0, **options})


def said(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def answer(http: HttpServed, messages: Any = "Hello", **fields: Any) -> dict[str, Any]:
    """Returns a whole message, and checks that the streamed one equals it."""
    messages = said(messages) if isinstance(messages, str) else messages
    body = {"messages": messages, "max_tokens": 20, "seed": 0, **fields}
    reply = http.client.post(PATH, body)
    assert reply.status == 200, reply.content
    streamed = built(http.client.stream(PATH, body).objects)
    assert comparable(streamed) == comparable(reply.json)
    return dict(reply.json)


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """Removes the id, and what only the first of two equal calls has."""
    usage = message["usage"]
    n_input = usage["input_tokens"] + usage["cache_read_input_tokens"]
    return {**message, "id": None, "usage": (n_input, usage["output_tokens"], usage["output_tokens_details"])}


def refusal(http: HttpServed, path: str = PATH, **fields: Any) -> tuple[int, str]:
    """Returns the status and the message of a refused request."""
    reply = http.client.post(path, {"messages": said("Hello"), **({"max_tokens": 5} if path == PATH else {}), **fields})
    assert reply.status >= 400, reply.content
    return reply.status, reply.error["message"]
