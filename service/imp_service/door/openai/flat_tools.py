"""Tools and the choice among them in the form of /v1/responses, where a function is not within another object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from imp_service.door.openai.kinds import Mismatch, entries, flag, members, read_members, shown, text, within
from imp_service.door.openai.tools import SHOWN_CHOICES, Choice, by_name, read_allowed

FUNCTION = "function"
READERS: Mapping[str, Callable[[Any], Any]] = {
    "type": text,
    "name": text,
    "description": text,
    "parameters": members,
    "strict": flag,
}


def read_flat_tools(value: Any) -> list[dict[str, Any]]:
    """The tools in the form of chats. Each must be a function with a name."""
    return [within(f"[{i}]", _tool, each) for i, each in enumerate(entries(value))]


def read_flat_choice(value: Any) -> Choice:
    """The choice."""
    if isinstance(value, str):
        return Choice(value)
    match members(value).get("type"):
        case "function":
            return by_name(_name_of(value))
        case "allowed_tools":
            return read_allowed(value, _name_of)
        case kind:
            words = f"{shown(kind)} is not supported: expected {SHOWN_CHOICES}"
            raise Mismatch(words, ".type")


def _name_of(value: Any) -> str:
    return str(within(".name", text, value.get("name")))


def _tool(value: Any) -> dict[str, Any]:
    kind = members(value).get("type")
    if kind != FUNCTION:
        raise Mismatch(f"{shown(kind)} is not supported: declare a function, and run it yourself", ".type")
    found = read_members(value, READERS)
    if not found.get("name"):
        raise Mismatch("not set", ".name")
    return {"type": FUNCTION, FUNCTION: {name: found[name] for name in value if name in found and name != "type"}}
