"""The input of /v1/responses as a conversation of imp."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from imp_service.http_api.openai.messages import content_reader
from imp_service.http_api.requests.image_rules import ImageRules
from imp_service.http_api.requests.turns import one_turn
from imp_service.http_api.requests.values import (
    ReadValue,
    WrongValue,
    anything,
    entries,
    members,
    only,
    read_members,
    shown,
    text,
    within,
)
from imp_service.text import ChatMessage

ASSISTANT = "assistant"
ROLES = ("user", ASSISTANT, "system", "developer")
ITEM_REFERENCE = "item_reference"


@dataclass(frozen=True, slots=True)
class InputMessage:
    """A message, and where the input has it."""

    where: str
    message: ChatMessage
    # The member of the item that has the content.
    content: str = "content"


def read_input(value: Any, *, has_developer: bool, rules: ImageRules) -> list[InputMessage]:
    """The messages of an input. `has_developer`: as for read_messages(). Raises WrongValue."""
    if isinstance(value, str):
        return [InputMessage("", ChatMessage("user", value))]
    if not isinstance(value, list):
        raise WrongValue(f"{shown(value)}, expected a string or a list of items")
    found: list[InputMessage] = []
    content = content_reader(rules)
    for i, each in enumerate(value):
        where = f"[{i}]"
        message = within(where, _message_of, each, has_developer, content)
        if found and _goes_on(found[-1].message, message):
            found[-1] = replace(found[-1], message=one_turn(found[-1].message, message))
        else:
            found.append(InputMessage(where, message, "output" if message.role == "tool" else "content"))
    return found


def _message_of(value: Any, has_developer: bool, content: ReadValue) -> ChatMessage:
    """One item, as a message of its own."""
    kind = members(value).get("type") or "message"
    if not isinstance(kind, str) or kind not in ITEMS:
        instead = "items are not stored, send the item itself" if kind == ITEM_REFERENCE else "expected " + SHOWN_ITEMS
        raise WrongValue(f"{shown(kind)} is not supported: {instead}", ".type")
    item = ITEMS[kind]
    found = read_members(value, {**item.readers, **dict.fromkeys(item.contents, content)})
    for name in item.required:
        if name not in found:
            raise WrongValue("not set", f".{name}")
    message = item.message(found)
    return replace(message, role="system") if message.role == "developer" and not has_developer else message


def _goes_on(before: ChatMessage, message: ChatMessage) -> bool:
    """Whether both belong to one turn of the assistant: reasoning, then a text, then calls."""
    if before.role != ASSISTANT or message.role != ASSISTANT:
        return False
    has_only_calls = not message.content and not message.reasoning_content
    had_only_reasoning = not before.content and not before.tool_calls_json
    return has_only_calls or had_only_reasoning


def _call(found: Mapping[str, Any]) -> ChatMessage:
    function = {"name": found["name"], "arguments": found["arguments"]}
    calls = [{"id": found["call_id"], "type": "function", "function": function}]
    return ChatMessage(ASSISTANT, None, tool_calls_json=json.dumps(calls, ensure_ascii=False))


def _output(found: Mapping[str, Any]) -> ChatMessage:
    return ChatMessage("tool", found["output"], name=found.get("name", ""), tool_call_id=found["call_id"])


def _reasoning(found: Mapping[str, Any]) -> ChatMessage:
    """The summary is used only if the reasoning itself is missing."""
    return ChatMessage(ASSISTANT, None, reasoning_content=found.get("content") or found.get("summary", ""))


def _texts_of(kind: str) -> Callable[[Any], str]:
    """A list of parts of one type, joined."""

    def read(value: Any) -> str:
        parts = [
            within(f"[{i}]", read_members, each, {"type": only(kind), "text": text})
            for i, each in enumerate(entries(value))
        ]
        return "".join(part.get("text", "") for part in parts)

    return read


def _encrypted(value: Any) -> None:
    raise WrongValue("not supported: imp sends reasoning as text, so send that text back")


@dataclass(frozen=True, slots=True)
class ItemType:
    """One type of item."""

    message: Callable[[Mapping[str, Any]], ChatMessage]
    required: tuple[str, ...]
    # Of every member but contents.
    readers: Mapping[str, ReadValue]
    # The members that are texts or lists of parts.
    contents: tuple[str, ...] = ()


# Fields that every item may have, and that imp does not use.
ANY_ITEM: Mapping[str, ReadValue] = {"type": text, "id": text, "status": text}
ITEMS: Mapping[str, ItemType] = {
    "message": ItemType(
        lambda found: ChatMessage(found["role"], found["content"]),
        ("role", "content"),
        {**ANY_ITEM, "role": only(*ROLES), "phase": anything},
        ("content",),
    ),
    "function_call": ItemType(
        _call,
        ("call_id", "name", "arguments"),
        {**ANY_ITEM, "call_id": text, "name": text, "arguments": text},
    ),
    "function_call_output": ItemType(
        _output,
        ("call_id", "output"),
        {**ANY_ITEM, "call_id": text, "name": text},
        ("output",),
    ),
    "reasoning": ItemType(
        _reasoning,
        (),
        {
            **ANY_ITEM,
            "summary": _texts_of("summary_text"),
            "content": _texts_of("reasoning_text"),
            "encrypted_content": _encrypted,
        },
    ),
}
SHOWN_ITEMS = ", ".join(ITEMS)
