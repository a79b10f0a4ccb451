"""Tools of more than 100 kB work at both APIs, and cost once what they cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from imp_service.text import ConstraintCompiler
from support.servers.http_served import HttpServed, serve_http
from support.servers.messages_served import PATH, said
from support.servers.served_models import scripted

WORDS = "one of the words that a caller may give, or none of them if there is no better one. "


def parameters(number: int) -> dict[str, Any]:
    names = [f"field_{number}_{i}" for i in range(6)]
    properties = {name: {"type": "string", "description": WORDS} for name in names}
    return {"type": "object", "properties": properties, "required": names[:1], "additionalProperties": False}


TOOLS = [{"name": f"tool_{i}", "description": WORDS, "input_schema": parameters(i)} for i in range(120)]
CHAT_TOOLS = [
    {"type": "function", "function": {**{key: tool[key] for key in ("name", "description")}, "parameters": schema}}
    for tool in TOOLS
    for schema in (tool["input_schema"],)
]
ASKS = {
    "messages": (PATH, TOOLS, {"type": "any"}),
    "chats": ("/v1/chat/completions", CHAT_TOOLS, "required"),
}


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http(model=scripted(max_context=120_000, n_blocks=16_000)) as it:
        yield it


def cached_share(reply: Any) -> float:
    """Returns the share of the prompt's tokens that came from the cache."""
    usage = reply.json["usage"]
    if "cache_read_input_tokens" in usage:
        cached = usage["cache_read_input_tokens"]
        return float(cached / (cached + usage["input_tokens"]))
    return float(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])


@pytest.mark.parametrize("api", ASKS)
def test_msg_10_the_second_request_with_the_same_tools_computes_none_of_them(
    http: HttpServed, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tools, forced = ASKS[api]
    assert len(json.dumps(tools)) > 100_000
    compiled: list[object] = []
    compile_one = ConstraintCompiler._compile

    def counted(self: ConstraintCompiler, *given: Any) -> Any:
        compiled.append(given)
        return compile_one(self, *given)

    monkeypatch.setattr(ConstraintCompiler, "_compile", counted)
    asked = {"tools": tools, "tool_choice": forced, "max_tokens": 4, "cache_salt": api}
    shares = []
    for text in ("Hello", "And now?"):
        reply = http.client.post(path, {**asked, "messages": said(text)})
        assert reply.status == 200, reply.content[:300]
        shares.append(cached_share(reply))
    assert shares[0] == 0 and shares[1] > 0.99
    assert len(compiled) <= 1  # the other API may have compiled the same functions before


@pytest.mark.parametrize("api", ASKS)
def test_msg_10_tools_beyond_the_limit_are_refused_by_their_field(http: HttpServed, api: str) -> None:
    path, tools, _ = ASKS[api]
    reply = http.client.post(path, {"messages": said("Hello"), "tools": tools * 4, "max_tokens": 4})
    assert reply.status == 400 and "tools" in reply.error["message"]
