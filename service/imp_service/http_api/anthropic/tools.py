"""Tools and the choice among them in Anthropic's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imp_service.api.options import FORCED
from imp_service.http_api.requests.tools import AUTO, Tool, ToolChoice, by_name
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
    refused,
    shown,
    text,
    within,
)

CUSTOM = "custom"
READERS: Mapping[str, ReadValue] = {
    "type": only(CUSTOM),
    "name": text,
    "description": text,
    "input_schema": members,
    "strict": flag,
    "cache_control": anything,
    "eager_input_streaming": anything,
    "defer_loading": only(False),
    "allowed_callers": only(["direct"]),
    "input_examples": ignored,
    "function": refused("its members belong into the tool itself"),
    "parameters": refused("use input_schema"),
}
MODES: Mapping[str, str] = {"auto": AUTO.mode, "any": FORCED, "none": "none"}


def read_tools(value: Any) -> list[Tool]:
    """The tools in the form of imp. Each must have a name and a schema."""
    return [within(f"[{i}]", _tool, each) for i, each in enumerate(entries(value))]


def read_tool_choice(value: Any) -> tuple[ToolChoice, bool]:
    """The choice, and whether one output may have several calls."""
    known = only("tool", *MODES)
    found = read_members(value, {"type": known, "name": text, "disable_parallel_tool_use": flag})
    if "type" not in found:
        raise WrongValue("not set", ".type")
    is_parallel = not found.get("disable_parallel_tool_use", False)
    if found["type"] != "tool":
        return ToolChoice(MODES[found["type"]]), is_parallel
    if "name" not in found:
        raise WrongValue("not set, expected the name of a tool", ".name")
    return by_name(found["name"]), is_parallel


def _tool(value: Any) -> Tool:
    """Tools that only Anthropic's servers run, or whose schema only its models know, are refused by their type."""
    kind = members(value).get("type") or CUSTOM
    if kind != CUSTOM:
        words = f"{shown(kind)} is not supported: imp runs no tools and knows no schema of it, expected {CUSTOM}"
        raise WrongValue(words, ".type")
    found = read_members(value, READERS)
    for name in ("name", "input_schema"):
        if not found.get(name) and (name == "name" or name not in found):
            raise WrongValue("not set", f".{name}")
    function = {
        "name": found["name"],
        **({"description": found["description"]} if "description" in found else {}),
        "parameters": found["input_schema"],
        **({"strict": True} if found.get("strict") else {}),
    }
    return {"type": "function", "function": function}
