"""The tools of a request and the choice among them, in the form of imp."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from imp_service.api.options import BY_NAME
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.values import shown

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools the model may call."""

    # In the form of imp: a mode, or one function by its name.
    mode: str = ""
    # Names of functions. The others are hidden from the model. None: all are allowed.
    allowed: Sequence[str] | None = None


AUTO = ToolChoice()


def by_name(name: str) -> ToolChoice:
    """The choice of one function."""
    return ToolChoice(f"{BY_NAME}{name}")


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
