"""Tool calls as callers get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The new part of one call.

    Only the first delta has the id and the name. The `arguments` of all deltas joined are JSON.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


def joined_calls(deltas: Sequence[ToolCallDelta]) -> list[ToolCallDelta]:
    """The deltas of each call as one."""
    found: dict[int, ToolCallDelta] = {}
    for each in deltas:
        sofar = found.get(each.index, ToolCallDelta(each.index))
        found[each.index] = ToolCallDelta(
            each.index, sofar.id or each.id, sofar.name or each.name, sofar.arguments + each.arguments
        )
    return list(found.values())
