"""Converts the arguments of decide() to requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .arguments import Message, chat_of
from .chat_prompt import ChatMessage, ChatPrompt, PromptParts
from .decisions import DecisionRequest, IntegerRange
from .errors import invalid
from .image import Image
from .keywords import parameters_of, take
from .options import DEFAULT_CACHE, CacheOptions, Prompt
from .several import naming_prompt

# A text, token ids, a conversation, or several of them.
Question = Prompt | Sequence[Message]
Questions = list[str] | tuple[str, ...] | list[list[int]] | list[ChatPrompt] | list[list[Message]]
Numbers = IntegerRange | tuple[int, int] | tuple[int, int, int]
DECISION_PARAMETERS = [
    *parameters_of(DEFAULT_CACHE),
    *(each for each in parameters_of(DecisionRequest("")) if each.name not in ("prompt", "labels", "range")),
]


def decisions_of(
    question: Question | Questions, labels: Sequence[str], numbers: Numbers | None, options: dict[str, Any]
) -> tuple[list[DecisionRequest], bool]:
    """The requests, and whether the question was several."""
    given: Any = question
    cache = options.pop("cache") if isinstance(options.get("cache"), CacheOptions) else DEFAULT_CACHE
    listed: Any = tuple(labels) if isinstance(labels, list) else labels
    common = {"labels": listed, "range": _range_of(numbers), "cache": take(cache, options), **options}
    if not _is_several(given):
        return [DecisionRequest(_prompt_of(given), **common)], False
    found = []
    for i, each in enumerate(given):
        with naming_prompt(i):
            found.append(DecisionRequest(_prompt_of(each), **common))
    return found, True


def _is_several(given: Any) -> bool:
    """A list of numbers, of messages, or of texts and images is one question."""
    if not isinstance(given, list | tuple) or not given or any(isinstance(each, Image) for each in given):
        return False
    return isinstance(given[0], str | ChatPrompt | PromptParts | list | tuple)


def _prompt_of(given: Any) -> Prompt:
    if isinstance(given, list | tuple):
        if given and isinstance(given[0], ChatMessage | Mapping):
            return chat_of(given, {})
        if any(isinstance(each, Image) for each in given):
            return PromptParts(tuple(given))
    return given  # type: ignore[no-any-return]


def _range_of(given: Any) -> IntegerRange | None:
    if given is None or isinstance(given, IntegerRange):
        return given
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= 3:
        raise invalid("range", f"{given!r}, expected (low, high) or (low, high, step)")
    return IntegerRange(*given)
