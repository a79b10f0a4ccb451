"""Turns of a conversation that a request has in several pieces."""

from __future__ import annotations

import json
from dataclasses import replace

from imp_service.api.chat_prompt import joined
from imp_service.text import ChatMessage


def one_turn(before: ChatMessage, message: ChatMessage) -> ChatMessage:
    """Two messages of one role as one: their reasoning, their contents and their calls, each joined."""
    calls = [*json.loads(before.tool_calls_json or "[]"), *json.loads(message.tool_calls_json or "[]")]
    has_content = before.content is not None or message.content is not None
    return replace(
        before,
        content=joined((*before.parts(), *message.parts())) if has_content else None,
        tool_calls_json=json.dumps(calls, ensure_ascii=False) if calls else "",
        reasoning_content=before.reasoning_content + message.reasoning_content,
    )
