"""Tools and the choice among them."""

from __future__ import annotations

import json
from typing import Any

from imp_service.api.options import BY_NAME
from imp_service.door.openai.kinds import Mismatch, entries, expected, members, shown, text


def read_tools(value: Any) -> str:
    """The tools as JSON. Each must be a function with a name."""
    for i, tool in enumerate(entries(value)):
        if members(tool).get("type") != "function":
            raise expected('"function"', tool.get("type"), f"[{i}].type")
        function = tool.get("function")
        if not isinstance(function, dict):
            raise expected("an object", function, f"[{i}].function")
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise expected("a string", function.get("name"), f"[{i}].function.name")
    return json.dumps(value, ensure_ascii=False) if value else ""


def read_tool_choice(value: Any) -> str:
    """The choice in the form of imp: a mode, or one function by its name."""
    if isinstance(value, str):
        return value
    function = members(value).get("function")
    if value.get("type") != "function" or not isinstance(function, dict):
        raise Mismatch(f"{shown(value)}, expected a mode or a function")
    return f"{BY_NAME}{text(function.get('name'))}"
