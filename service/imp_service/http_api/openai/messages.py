"""The messages of a chat request as a conversation of imp."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from imp_service.api.content_parts import NO_TEXT, text_member
from imp_service.http_api.openai.values import (
    WrongValue,
    entries,
    expected,
    members,
    read_members,
    refused,
    text,
    within,
)
from imp_service.text import ChatMessage


def read_messages(value: list[Any], *, has_developer: bool) -> tuple[ChatMessage, ...]:
    """The messages. Without `has_developer`, the role `developer` becomes `system`: the template does not know it.

    Raises WrongValue. The rules of roles and sizes are those of imp's conversations.
    """
    return tuple(within(f"[{i}]", _message, each, has_developer) for i, each in enumerate(value))


def _message(value: Any, has_developer: bool) -> ChatMessage:
    found = read_members(value, READERS)
    if "role" not in found:
        raise WrongValue("not set", ".role")
    role = found["role"]
    if role == "tool" and "tool_call_id" not in found:
        raise WrongValue("not set, expected in a message of role tool", ".tool_call_id")
    if "content" not in found and "tool_calls" not in found and role != "assistant":
        raise WrongValue("not set", ".content")
    return ChatMessage(
        role="system" if role == "developer" and not has_developer else role,
        content=found.get("content", None if role == "assistant" else ""),
        name=found.get("name", ""),
        tool_call_id=found.get("tool_call_id", ""),
        tool_calls_json=found.get("tool_calls", ""),
        reasoning_content=found.get("reasoning_content") or found.get("reasoning", ""),
    )


def content_of(value: Any) -> str:
    """A text, or the parts of one."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise expected("a string or a list of parts", value)
    return "".join(within(f"[{i}]", _part, each) for i, each in enumerate(value))


def _part(value: Any) -> str:
    kind = members(value).get("type")
    member = text_member(kind)
    if member is None:
        raise WrongValue(f"{json.dumps(kind)} {NO_TEXT}", ".type")
    return str(within(f".{member}", text, value.get(member)))


def _tool_calls(value: Any) -> str:
    return json.dumps(entries(value), ensure_ascii=False) if entries(value) else ""


def _no_images(value: Any) -> None:
    """Ollama's member for images. Its clients send it empty too."""
    if entries(value):
        raise WrongValue(NO_TEXT)


READERS: Mapping[str, Callable[[Any], Any]] = {
    "role": text,
    "content": content_of,
    "name": text,
    "tool_call_id": text,
    "tool_calls": _tool_calls,
    "refusal": text,
    "annotations": entries,
    "reasoning_content": text,
    "reasoning": text,
    "audio": refused("messages are text"),
    "function_call": refused("use tool_calls"),
    "images": _no_images,
}
