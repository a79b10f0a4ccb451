"""Tools and the choice among them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from imp_service.api.options import BY_NAME, FORCED
from imp_service.http_api.openai.reading import Reading
from imp_service.http_api.openai.values import WrongValue, entries, expected, members, only, shown, text, within

Tool = Mapping[str, Any]
SHOWN_CHOICES = "none, auto, required, a function or allowed_tools"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools the model may call."""

    # In the form of imp: a mode, or one function by its name.
    mode: str = ""
    # Names of functions. The others are hidden from the model. None: all are allowed.
    allowed: Sequence[str] | None = None


AUTO = ToolChoice()


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


def by_name(name: str) -> ToolChoice:
    """The choice of one function."""
    return ToolChoice(f"{BY_NAME}{name}")


def read_allowed(value: Any, name_of: Callable[[Any], str]) -> ToolChoice:
    """Several functions, of which the model may call any or must call one."""
    mode = within(".mode", only("auto", FORCED), members(value).get("mode"))
    listed = within(".tools", entries, value.get("tools"))
    if not listed:
        raise WrongValue("expected at least one tool", ".tools")
    return ToolChoice(mode, tuple(within(f".tools[{i}]", _function, each, name_of) for i, each in enumerate(listed)))


def tools_json(reading: Reading, tools: Sequence[Tool | None], choice: ToolChoice, inner: str = "") -> str:
    """The tools that the model may call, as JSON. `inner`: the caller's tools have no such member."""
    known = [None if tool is None else tool["function"]["name"] for tool in tools]
    for name in choice.allowed or ():
        if name not in known:
            reading.wrong("tool_choice", f"{shown(name)} is not a function of tools")
    shown_ids = [
        i for i, name in enumerate(known) if name is not None and (choice.allowed is None or name in choice.allowed)
    ]
    for place, i in enumerate(shown_ids):
        reading.set_by(f"chat.tools_json[{place}]{inner}", f"tools[{i}]")
    return json.dumps([tools[i] for i in shown_ids], ensure_ascii=False) if shown_ids else ""


def _function(value: Any, name_of: Callable[[Any], str]) -> str:
    within(".type", only("function"), members(value).get("type"))
    return name_of(value)


def _name_of(value: Any) -> str:
    return str(within(".function.name", text, members(value.get("function")).get("name")))
