"""Tools and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from imp_service.api.options import FORCED
from imp_service.http_api.requests.tools import Tool, ToolChoice, by_name
from imp_service.http_api.requests.values import WrongValue, entries, expected, members, only, shown, text, within

SHOWN_CHOICES = "none, auto, required, a function or allowed_tools"


def read_tools(value: Any) -> list[Tool | None]:
    """The tools. Each must be a function with a name."""
    for i, tool in enumerate(entries(value)):
        if members(tool).get("type") != "function":
            raise expected('"function"', tool.get("type"), f"[{i}].type")
        function = tool.get("function")
        if not isinstance(function, dict):
            raise expected("an object", function, f"[{i}].function")
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise expected("a string", function.get("name"), f"[{i}].function.name")
    return list(value)


def read_tool_choice(value: Any) -> ToolChoice:
    """The choice."""
    if isinstance(value, str):
        return ToolChoice(value)
    if members(value).get("type") == "allowed_tools":
        return within(".allowed_tools", read_allowed, value.get("allowed_tools"), _name_of)  # type: ignore[no-any-return]
    if value.get("type") != "function" or not isinstance(value.get("function"), dict):
        raise WrongValue(f"{shown(value)}, expected {SHOWN_CHOICES}")
    return by_name(_name_of(value))


def read_allowed(value: Any, name_of: Callable[[Any], str]) -> ToolChoice:
    """Several functions, of which the model may call any or must call one."""
    mode = within(".mode", only("auto", FORCED), members(value).get("mode"))
    listed = within(".tools", entries, value.get("tools"))
    if not listed:
        raise WrongValue("expected at least one tool", ".tools")
    return ToolChoice(mode, tuple(within(f".tools[{i}]", _function, each, name_of) for i, each in enumerate(listed)))


def _function(value: Any, name_of: Callable[[Any], str]) -> str:
    within(".type", only("function"), members(value).get("type"))
    return name_of(value)


def _name_of(value: Any) -> str:
    return str(within(".function.name", text, members(value.get("function")).get("name")))
