"""The names of the served model in Anthropic's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from imp_service.api.errors import invalid

# The names of one page: Anthropic's default, and the most.
LIMIT, MOST = 20, 1000
# Of every model that is served.
LIFECYCLE = "active"


@dataclass(frozen=True, slots=True)
class ServedFacts:
    """What every name of the served model has in common."""

    shown_name: str
    created: float  # seconds since 1970
    max_context: int
    max_tokens: int | None  # of an answer; None: up to the context


def models_page(names: Sequence[str], facts: ServedFacts, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A page of the list. `pairs`: the fields of the query. Raises FieldsInvalid if one is wrong."""
    query, lifecycles = dict(pairs), [value for name, value in pairs if name.removesuffix("[]") == "lifecycle"]
    left, limit = list(names), _limit(query)
    if lifecycles and LIFECYCLE not in lifecycles:
        left = []
    if (after := query.get("after_id")) is not None:
        left = left[_place(left, after, "after_id") + 1 :]
    if (before := query.get("before_id")) is not None:
        left = left[: _place(left, before, "before_id")]
    # Before a name, the page is the one that ends there.
    page = left[:limit] if before is None else left[-limit:]
    return {
        "data": [model_entry(name, facts) for name in page],
        "has_more": len(page) < len(left),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def model_entry(name: str, facts: ServedFacts) -> dict[str, Any]:
    """One name."""
    return {
        "type": "model",
        "id": name,
        "display_name": facts.shown_name,
        "created_at": datetime.fromtimestamp(facts.created, UTC).isoformat(timespec="seconds"),
        "lifecycle": LIFECYCLE,
        "max_input_tokens": facts.max_context,
        "max_tokens": facts.max_tokens or facts.max_context,
    }


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(LIMIT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST):
        raise invalid("limit", f"expected a whole number of 1 to {MOST}")
    return int(text)


def _place(names: Sequence[str], name: str, field: str) -> int:
    if name not in names:
        raise invalid(field, "no id of a model in the list")
    return names.index(name)
