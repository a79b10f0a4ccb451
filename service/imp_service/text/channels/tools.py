"""The functions that a request offers: their names, and the JSON Schemas of their arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

Schema = Mapping[str, object]

# The schema of a function without parameters.
NO_PARAMETERS: Schema = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function. `path` is the field of its schema, for errors."""

    name: str
    schema: object
    path: str
    # Keywords of the schema that cannot be enforced are refused. Otherwise they are hints.
    is_strict: bool = False


def read_tools(tools_json: str) -> tuple[Tool, ...]:
    """The tools of a valid `tools_json` that are functions with a name, in the OpenAI shape or the function alone."""
    listed = json.loads(tools_json) if tools_json else []
    found: list[Tool] = []
    for index, each in enumerate(listed if isinstance(listed, list) else []):
        function = each.get("function", each) if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        inner = ".function" if function is not each else ""
        schema = function.get("parameters")
        is_strict = function.get("strict") is True
        path = f"chat.tools_json[{index}]{inner}.parameters"
        found.append(Tool(function["name"], NO_PARAMETERS if schema is None else schema, path, is_strict))
    return tuple(found)
