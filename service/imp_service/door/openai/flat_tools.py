"""Tools and the choice among them in the form of /v1/responses, where a function is not within another object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from imp_service.door.openai.kinds import Mismatch, entries, flag, members, read_members, shown, text, within
from imp_service.door.openai.tools import read_tool_choice

FUNCTION = "function"
READERS: Mapping[str, Callable[[Any], Any]] = {
    "type": text,
    "name": text,
    "description": text,
    "parameters": members,
    "strict": flag,
}


def read_flat_tools(value: Any) -> str:
    """The tools as JSON in the form of chats. Each must be a function with a name."""
    tools = [within(f"[{i}]", _tool, each) for i, each in enumerate(entries(value))]
    return json.dumps(tools, ensure_ascii=False) if tools else ""


def read_flat_choice(value: Any) -> str:
    """The choice in the form of imp."""
    if not isinstance(value, dict):
        return read_tool_choice(value)
    if value.get("type") != FUNCTION:
        raise Mismatch(f"{shown(value.get('type'))} is not supported: expected a mode or a function", ".type")
    return read_tool_choice({"type": FUNCTION, FUNCTION: {"name": within(".name", text, value.get("name"))}})


def _tool(value: Any) -> dict[str, Any]:
    kind = members(value).get("type")
    if kind != FUNCTION:
        raise Mismatch(f"{shown(kind)} is not supported: declare a function, and run it yourself", ".type")
    found = read_members(value, READERS)
    if not found.get("name"):
        raise Mismatch("not set", ".name")
    return {"type": FUNCTION, FUNCTION: {name: found[name] for name in value if name in found and name != "type"}}
