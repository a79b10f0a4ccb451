"""The facts of an option, which its field carries, and the walker that checks the options of a request by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, cast

from .rules import ANYTHING, Finding, Limits, Rule


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one option. Its default is that of the field."""

    rule: Rule = ANYTHING
    # What it does, for the readers of every API. Empty: the core's table of the sampler says it.
    about: str = ""
    # Its keyword in the library, if that is not its name.
    keyword: str = ""
    # Its name in OpenAI's API and in SamplingParams of VllmEngine; empty if it has none there.
    openai: str = ""
    vllm: str = ""


NO_FACTS = Facts()


def option(
    default: Any = MISSING, rule: Rule = ANYTHING, *, factory: Callable[[], Any] | None = None, **facts: str
) -> Any:
    """A field of an option class with its facts."""
    metadata = {"facts": Facts(rule, **facts)}
    return field(metadata=metadata, default_factory=factory) if factory else field(default=default, metadata=metadata)


def facts_of(option: Field[Any]) -> Facts:
    """The facts of a field; those of a field without any are empty."""
    return cast(Facts, option.metadata.get("facts", NO_FACTS))


def findings(options: object, limits: Limits, path: str = "") -> Iterator[Finding]:
    """Everything that is wrong with the options: each field that is set by its rule, then what contradicts itself."""
    kind: Any = type(options)
    found: list[Finding] = []
    for name, rule, default in _rules(kind):
        value = getattr(options, name)
        if value is default or value is None:
            continue  # most are: a default is valid
        where = f"{path}.{name}" if path else name
        if rule is not ANYTHING:
            found += rule.check(value, where, limits)
        elif is_dataclass(value):
            found += findings(value, limits, where)
    yield from found
    contradictions = getattr(options, "contradictions", None)
    if contradictions is not None and not found:
        yield from contradictions(path)


@cache
def _rules(kind: type) -> tuple[tuple[str, Rule, Any], ...]:
    return tuple((each.name, facts_of(each).rule, each.default) for each in fields(kind))
