"""The messages of a chat request as a conversation of imp."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from imp_service.door.openai.kinds import Mismatch, entries, expected, members, text
from imp_service.text import ChatMessage

TEXT_PARTS = ("text", "input_text", "output_text")
NO_TEXT = "is not supported: messages are text"


def read_messages(value: list[Any], *, has_developer: bool) -> tuple[ChatMessage, ...]:
    """The messages. `has_developer`: the template knows the role `developer`; if not, such a message is the system's.

    Raises Mismatch. The rules of roles and sizes are those of imp's conversations.
    """
    return tuple(_within(f"[{i}]", _message, each, has_developer) for i, each in enumerate(value))


def _within(where: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `read`. A Mismatch gets `where` before its own path."""
    try:
        return read(*arguments)
    except Mismatch as mismatch:
        raise Mismatch(mismatch.message, f"{where}{mismatch.where}") from None


def _message(value: Any, has_developer: bool) -> ChatMessage:
    fields = members(value)
    unknown = sorted(fields.keys() - READERS.keys())
    if unknown:
        raise Mismatch("unknown field", f".{unknown[0]}")
    found = {
        name: _within(f".{name}", read, fields[name]) for name, read in READERS.items() if fields.get(name) is not None
    }
    if "role" not in found:
        raise Mismatch("not set", ".role")
    role = found["role"]
    if role == "tool" and "tool_call_id" not in found:
        raise Mismatch("not set, expected in a message of role tool", ".tool_call_id")
    if "content" not in found and "tool_calls" not in found and role != "assistant":
        raise Mismatch("not set", ".content")
    return ChatMessage(
        role="system" if role == "developer" and not has_developer else role,
        content=found.get("content", ""),
        name=found.get("name", ""),
        tool_call_id=found.get("tool_call_id", ""),
        tool_calls_json=found.get("tool_calls", ""),
        reasoning_content=found.get("reasoning_content", ""),
    )


def _content(value: Any) -> str:
    """A text, or the parts of one."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise expected("a text or a list of parts", value)
    return "".join(_within(f"[{i}]", _part, each) for i, each in enumerate(value))


def _part(value: Any) -> str:
    kind = members(value).get("type")
    if kind == "refusal":
        return str(_within(".refusal", text, value.get("refusal")))
    if kind not in TEXT_PARTS:
        raise Mismatch(f"{json.dumps(kind)} {NO_TEXT}", ".type")
    return str(_within(".text", text, value.get("text")))


def _tool_calls(value: Any) -> str:
    return json.dumps(entries(value), ensure_ascii=False) if entries(value) else ""


def _nothing(value: Any) -> None:
    raise Mismatch("not supported")


READERS: Mapping[str, Callable[[Any], Any]] = {
    "role": text,
    "content": _content,
    "name": text,
    "tool_call_id": text,
    "tool_calls": _tool_calls,
    "refusal": text,
    "annotations": entries,
    "reasoning_content": text,
    "audio": _nothing,
    "function_call": _nothing,
}
