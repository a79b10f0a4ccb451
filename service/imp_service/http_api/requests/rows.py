"""The rows of tables of request fields: what a field is, which option of imp it sets, or why it is refused.

An option of imp that has a name here is a row by itself, made of the facts of its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from imp_service.api.facts import facts_of
from imp_service.api.options import SPARSE_POLICIES
from imp_service.http_api.requests import values
from imp_service.http_api.requests.values import ReadValue
from imp_service.tables import sampler_field


@dataclass(frozen=True, slots=True)
class Sets:
    """A field with an effect. `option` is the option of imp.v1 that it sets; empty if the code of the path reads it."""

    kind: ReadValue
    option: str
    about: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A field whose accepted values have no effect in imp. Other values are refused."""

    kind: ReadValue
    about: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that imp does not support, and what to use in its place."""

    instead: str


@dataclass(frozen=True, slots=True)
class Means:
    """Another server's name of the field `of`, which has a row in the same table."""

    kind: ReadValue
    of: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A field that changes no answer here, whatever its value. The header `imp-ignored` names it."""

    about: str


Row = Sets | Accepted | Refused | Means | Ignored
Table = Mapping[str, Row]

# How the type of an option is read.
KINDS: Mapping[str, ReadValue] = {
    "bool": values.flag,
    "bool | None": values.flag,
    "float | None": values.number,
    "int": values.whole,
    "int | None": values.whole,
    "str": values.text,
    "Sequence[int]": values.token_ids,
    "Sequence[str]": values.texts,
    "Mapping[int, float]": values.biases,
}
# Options that take more than their type, and what the value is that only HTTP has.
MORE: Mapping[str, tuple[ReadValue, str]] = {
    "sampling.top_k": (values.whole_or_all, "-1 too"),
    "sampling.top_p": (values.number, "0 keeps the most likely token"),
    "sampling.seed": (values.seed, "-1: a new one"),
    "sampling.penalty_window": (values.window, "here -1 means all, and 0 is refused"),
    "sampling.dry.window": (values.window, "here -1 means all, and 0 is refused"),
    "stop.strings": (values.text_or_texts, ""),
    "sparse_prefill.policy": (values.only(*SPARSE_POLICIES), ""),
}


def rows_of(options: type, group: str = "") -> Mapping[str, Sets]:
    """A row for each option of a class that has a name here."""
    return {facts_of(each).openai: _row(each, group) for each in fields(options) if facts_of(each).openai}


def _row(option: Field[Any], group: str) -> Sets:
    path = f"{group}.{option.name}" if group else option.name
    kind, note = MORE.get(path) or (KINDS[str(option.type)], "")
    about = facts_of(option).about or sampler_field(path.removeprefix("sampling.")).meaning
    return Sets(kind, path, "; ".join(filter(None, (about, note))))
