"""The blocks of a message's content, as a request has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from imp_service.api.image import Image
from imp_service.http_api.requests.image_rules import ImageRules
from imp_service.http_api.requests.values import (
    ReadValue,
    WrongValue,
    anything,
    entries,
    flag,
    ignored,
    members,
    only,
    read_members,
    shown,
    text,
    within,
)
from imp_service.media import read_base64, read_data_url
from imp_service.text import FieldInvalid

# A text or an image, and where it is.
Part = tuple[str | Image, str]
# How the result of a call that failed begins, so that the model knows it.
FAILED = "Error: "
AS_BASE64 = "send the image as a source of type base64"


@dataclass(frozen=True, slots=True)
class Thought:
    """The reasoning of a turn of the model."""

    text: str


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that the model made."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call returned."""

    call: str
    parts: Sequence[Part]
    # The member that has them.
    where: str = ".content"


# None: a block that imp does not use.
Block = str | Image | Thought | PastCall | CallResult | None


def read_blocks(value: Any, kinds: Sequence[str], rules: ImageRules) -> list[tuple[Block, str]]:
    """The blocks of a content, each with its path in it. A string is one block of text. Raises WrongValue."""
    if isinstance(value, str):
        return [(value, "")]
    if not isinstance(value, list):
        raise WrongValue(f"{shown(value)}, expected a string or a list of blocks")
    return [(within(f"[{i}]", _block, each, kinds, rules), f"[{i}]") for i, each in enumerate(value)]


def _block(value: Any, kinds: Sequence[str], rules: ImageRules) -> Block:
    kind = members(value).get("type")
    if not isinstance(kind, str) or kind not in kinds:
        why = REFUSED.get(str(kind), f"expected {', '.join(kinds)}")
        raise WrongValue(f"{shown(kind)} is not supported here: {why}", ".type")
    readers, required, make = READERS[kind]
    found = read_members(value, {**ANY_BLOCK, **readers})
    for name in required:
        if name not in found:
            raise WrongValue("not set", f".{name}")
    return make(found, rules)


def _image(found: Mapping[str, Any], rules: ImageRules) -> Image:
    return within(".source", _of_source, found["source"], rules)  # type: ignore[no-any-return]


def _of_source(source: Any, rules: ImageRules) -> Image:
    """The image of a source. The media type that it states decides nothing: the bytes say what they are."""
    kind = members(source).get("type")
    if kind == "file":
        raise WrongValue(f"not supported: nothing is stored here, {AS_BASE64}", ".type")
    member, read = within(".type", lambda each: SOURCES[only(*SOURCES)(each)], kind)
    found = read_members(source, {"type": text, "media_type": text, member: text})
    if member not in found:
        raise WrongValue("not set", f".{member}")
    try:
        return rules.image(read(found[member], member), is_low=False)
    except FieldInvalid as error:
        raise WrongValue(error.message, f".{member}") from None


def _call(found: Mapping[str, Any], _: ImageRules) -> PastCall:
    return PastCall(found["id"], found["name"], json.dumps(found["input"], ensure_ascii=False))


def _result(found: Mapping[str, Any], rules: ImageRules) -> CallResult:
    blocks = within(".content", read_blocks, found.get("content", ""), IN_RESULTS, rules)
    parts = [(part, where) for part, where in blocks if part != ""]
    if found.get("is_error") and not (parts and _says_error(parts[0][0])):
        parts.insert(0, (FAILED, ""))
    return CallResult(found["tool_use_id"], parts)


def _says_error(part: str | Image) -> bool:
    return isinstance(part, str) and part[: len(FAILED)].lower().startswith("error")


IN_RESULTS = ("text", "image")
IN_USERS = ("text", "image", "tool_result")
IN_ASSISTANTS = ("text", "thinking", "redacted_thinking", "tool_use")
IN_SYSTEM = ("text",)
# Why a block of a kind that Anthropic's API has is refused.
REFUSED: Mapping[str, str] = {
    "document": "messages are text and images, so send its text",
    "search_result": "messages are text and images, so send its text",
    "server_tool_use": "imp runs no tools",
    "mcp_tool_use": "imp runs no tools",
    "container_upload": "imp runs no code",
}
# How an image is sent, and the member that has it.
SOURCES: Mapping[str, tuple[str, Callable[[str, str], bytes]]] = {
    "base64": ("data", read_base64),
    "url": ("url", read_data_url),
}
# Members that any block may have. A prefix is cached by its content, whatever they say.
ANY_BLOCK: Mapping[str, ReadValue] = {"type": text, "cache_control": anything}
READERS: Mapping[str, tuple[Mapping[str, ReadValue], Sequence[str], Callable[[Mapping[str, Any], ImageRules], Block]]]
READERS = {
    "text": ({"text": text, "citations": entries}, ("text",), lambda found, _: str(found["text"])),
    "image": ({"source": members}, ("source",), _image),
    "thinking": (
        {"thinking": text, "signature": text},
        ("thinking",),
        lambda found, _: Thought(found["thinking"]),
    ),
    "redacted_thinking": ({"data": ignored}, (), lambda found, _: None),
    "tool_use": ({"id": text, "name": text, "input": members, "caller": anything}, ("id", "name", "input"), _call),
    "tool_result": (
        {"tool_use_id": text, "content": anything, "is_error": flag},
        ("tool_use_id",),
        _result,
    ),
}
