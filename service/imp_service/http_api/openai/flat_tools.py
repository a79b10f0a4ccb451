"""Tools and the choice among them in the form of /v1/responses, where a function is not within another object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from imp_service.http_api.openai.tools import SHOWN_CHOICES, read_allowed
from imp_service.http_api.requests.tools import Tool, ToolChoice, by_name
from imp_service.http_api.requests.values import (
    WrongValue,
    entries,
    flag,
    ignored,
    members,
    read_members,
    refused,
    shown,
    text,
    within,
)

FUNCTION = "function"
READERS: Mapping[str, Callable[[Any], Any]] = {
    "type": text,
    "name": text,
    "description": text,
    "parameters": members,
    "strict": flag,
    FUNCTION: refused("its members belong into the tool itself"),
}


def read_flat_tools(value: Any) -> list[Tool | None]:
    """The tools in the form of chats. Each function must have a name.

    Other tools run on the server of OpenAI, or need its format of calls. Agents offer them without being asked, and go
    on without them. So such a tool is ignored: None.
    """
    return [within(f"[{i}]", _tool, each) for i, each in enumerate(entries(value))]


def read_flat_choice(value: Any) -> ToolChoice:
    """The choice."""
    if isinstance(value, str):
        return ToolChoice(value)
    match members(value).get("type"):
        case "function":
            return by_name(_name_of(value))
        case "allowed_tools":
            return read_allowed(value, _name_of)
        case kind:
            words = f"{shown(kind)} is not supported: expected {SHOWN_CHOICES}"
            raise WrongValue(words, ".type")


def _name_of(value: Any) -> str:
    return str(within(".name", text, value.get("name")))


def _tool(value: Any) -> Tool | None:
    if within(".type", text, members(value).get("type")) != FUNCTION:
        ignored(value)
        return None
    found = read_members(value, READERS)
    if not found.get("name"):
        raise WrongValue("not set", ".name")
    return {"type": FUNCTION, FUNCTION: {name: found[name] for name in value if name in found and name != "type"}}
