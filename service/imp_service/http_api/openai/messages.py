"""The messages of a chat request as a conversation of imp."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from imp_service.api.chat_prompt import ContentParts, joined
from imp_service.api.content_parts import IMAGE_KINDS, IMAGE_MEMBER, NO_PART, text_member
from imp_service.api.image import Image
from imp_service.http_api.requests.image_rules import ImageRules
from imp_service.http_api.requests.values import (
    ReadValue,
    WrongValue,
    entries,
    expected,
    ignored,
    members,
    only,
    read_members,
    refused,
    text,
    within,
)
from imp_service.media import read_data_url
from imp_service.text import ChatMessage, FieldInvalid

DETAIL = only("auto", "low", "high")
DATA_URL = "send the image as a data: URL"


def read_messages(value: list[Any], *, has_developer: bool, rules: ImageRules) -> tuple[ChatMessage, ...]:
    """The messages. Without `has_developer`, the role `developer` becomes `system`: the template does not know it.

    Raises WrongValue. The rules of roles and sizes are those of imp's conversations.
    """
    readers = {**READERS, "content": content_reader(rules)}
    return tuple(within(f"[{i}]", _message, each, has_developer, readers) for i, each in enumerate(value))


def _message(value: Any, has_developer: bool, readers: Mapping[str, ReadValue]) -> ChatMessage:
    found = read_members(value, readers)
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


def content_reader(rules: ImageRules) -> ReadValue:
    """A reader of a text or of parts, which are joined unless there is an image."""

    def read(value: Any) -> str | ContentParts:
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise expected("a string or a list of parts", value)
        return joined(within(f"[{i}]", _part, each, rules) for i, each in enumerate(value))

    return read


def _part(value: Any, rules: ImageRules) -> str | Image:
    kind = members(value).get("type")
    if kind in IMAGE_KINDS:
        return _image(value, rules)
    member = text_member(kind)
    if member is None:
        raise WrongValue(f"{json.dumps(kind)} {NO_PART}", ".type")
    return str(within(f".{member}", text, value.get(member)))


def _image(part: Mapping[str, Any], rules: ImageRules) -> Image:
    """The image of a part: a URL, or an object with one, as the API or the other servers have it."""
    if part.get("file_id") is not None:
        raise WrongValue(f"not supported: nothing is stored here, {DATA_URL}", ".file_id")
    given = part.get(IMAGE_MEMBER)
    if isinstance(given, dict):
        found = within(f".{IMAGE_MEMBER}", read_members, given, {"url": text, "detail": DETAIL, "uuid": ignored})
        url, where, detail = found.get("url"), f".{IMAGE_MEMBER}.url", found.get("detail")
    else:
        url, where, detail = given, f".{IMAGE_MEMBER}", None
    if detail is None and part.get("detail") is not None:
        detail = within(".detail", DETAIL, part["detail"])
    if not isinstance(url, str):
        raise expected(f"a URL; {DATA_URL}", url, where)
    try:
        data = read_data_url(url, where)
    except FieldInvalid as error:
        raise WrongValue(error.message, where) from None
    return rules.image(data, is_low=detail == "low")


def _tool_calls(value: Any) -> str:
    return json.dumps(entries(value), ensure_ascii=False) if entries(value) else ""


def _no_images(value: Any) -> None:
    """Ollama's member for images. Its clients send it empty too."""
    if entries(value):
        raise WrongValue("not supported: images are parts of the content, of type image_url")


# Of every member but the content.
READERS: Mapping[str, ReadValue] = {
    "role": text,
    "name": text,
    "tool_call_id": text,
    "tool_calls": _tool_calls,
    "refusal": text,
    "annotations": entries,
    "reasoning_content": text,
    "reasoning": text,
    "audio": refused("messages are text and images"),
    "function_call": refused("use tool_calls"),
    "images": _no_images,
}
