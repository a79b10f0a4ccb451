"""The questions of /v1/decisions: how each is put to the model, its labels, and the form of its answer.

The words are a part of the API: other words give other probabilities.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from imp_service.api.content_parts import IMAGE_KINDS
from imp_service.api.decisions import Decision
from imp_service.http_api.requests.values import (
    ReadValue,
    WrongValue,
    entries,
    expected,
    members,
    only,
    read_members,
    shown,
    text,
    within,
)

PREDICATE, CHOICE, SCORE = "predicate", "choice", "score"
MAX_QUESTIONS = 400
# Of a choice, and levels of a score.
MAX_OPTIONS = 255
YES_NO = ("yes", "no")
JSON_KIND = "input_json"


@dataclass(frozen=True, slots=True)
class Option:
    """One of the answers that a question lists."""

    value: str | bool
    description: str = ""

    @property
    def line(self) -> str:
        """It, as the model reads it."""
        name = json.dumps(self.value) if isinstance(self.value, bool) else self.value
        return f"{name}: {self.description}" if self.description else name


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """One question."""

    kind: str
    instructions: str
    name: str | None = None
    options: tuple[Option, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """What the model is to answer: yes or no, a letter, or a number. Each is short, whatever the options are."""
        if self.kind == PREDICATE:
            return YES_NO
        if self.kind == CHOICE and len(self.options) <= len(ascii_uppercase):
            return tuple(ascii_uppercase[: len(self.options)])
        return tuple(map(str, range(len(self.options))))

    @property
    def text(self) -> str:
        """It, as the model reads it after the input."""
        if self.kind == PREDICATE:
            return f"Is this true? {self.instructions}\nAnswer with yes or no only."
        lines = [f"{label}) {option.line}" for label, option in zip(self.labels, self.options, strict=True)]
        label = "letter" if self.labels[0] in ascii_uppercase else "number"
        return "\n".join([self.instructions, *lines, f"Answer with the {label} of one line only."])

    def answer(self, decision: Decision) -> dict[str, Any]:
        """The answer in OpenAI's form."""
        found = [each.probability for each in decision.labels]
        head = {"type": self.kind, "name": self.name}
        if self.kind == PREDICATE:
            return {**head, "probability": found[0]}
        if self.kind == CHOICE:
            best = self.options[self.labels.index(decision.label)].value
            listed = [{"value": each.value, "probability": p} for each, p in zip(self.options, found, strict=True)]
            answer: dict[str, Any] = {"choice": best}
        else:
            listed = [
                {"value": i, "label": each.value, "probability": p}
                for i, (each, p) in enumerate(zip(self.options, found, strict=True))
            ]
            answer = {"score": math.fsum(i * p for i, p in enumerate(found))}
        return {**head, **answer, "probabilities": listed, "confidence": decision.confidence}


def read_questions(value: Any) -> list[TypedQuestion]:
    """The questions of a request. Raises WrongValue."""
    listed = _counted(value, 1, MAX_QUESTIONS)
    return [within(f"[{i}]", _question, each) for i, each in enumerate(listed)]


def _question(value: Any) -> TypedQuestion:
    kind = members(value).get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise WrongValue(f"{shown(kind)}, expected {', '.join(KINDS)}", ".type")
    readers, make = KINDS[kind]
    found = read_members(value, {"type": text, "name": text, "instructions": _instructions, **readers})
    for name in ("instructions", *readers):
        if name not in found:
            raise WrongValue("not set", f".{name}")
    return TypedQuestion(kind, found["instructions"], found.get("name"), make(found))


def _instructions(value: Any) -> str:
    found = text(value) if isinstance(value, str) else "".join(_part(i, each) for i, each in enumerate(entries(value)))
    if not found.strip():
        raise WrongValue("empty")
    return found


def _part(number: int, value: Any) -> str:
    def read() -> str:
        kind = members(value).get("type")
        if kind in IMAGE_KINDS:
            raise WrongValue("an image is not supported in a question: send it in the input")
        if kind == JSON_KIND:
            return json_text(value)
        return str(read_members(value, {"type": only("input_text"), "text": text}).get("text", ""))

    return str(within(f"[{number}]", read))


def json_text(part: Mapping[str, Any]) -> str:
    """The text of a part that is JSON: an object, or a list of objects, without spaces."""
    data = part.get("data")
    is_list = isinstance(data, list) and all(isinstance(each, dict) for each in data)
    if not isinstance(data, dict) and not is_list:
        raise expected("an object or a list of objects", data, ".data")
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _options(member: str, read: ReadValue) -> ReadValue:
    """A list of options, each with its value in `member`. Values are different; true and "true" are two values."""

    def options(value: Any) -> tuple[Option, ...]:
        found: dict[tuple[type, object], Option] = {}
        for i, each in enumerate(_counted(value, 2, MAX_OPTIONS)):
            option = within(f"[{i}]", _option, each, member, read)
            key = (type(option.value), option.value)
            if key in found:
                raise WrongValue(f"{shown(option.value)} is there twice", f"[{i}].{member}")
            found[key] = option
        return tuple(found.values())

    return options


def _option(value: Any, member: str, read: ReadValue) -> Option:
    found = read_members(value, {member: read, "description": text})
    if found.get(member, "") == "":
        raise WrongValue("not set" if member not in found else "empty", f".{member}")
    return Option(found[member], found.get("description", ""))


def _text_or_flag(value: Any) -> str | bool:
    if not isinstance(value, str | bool):
        raise expected("a string, true or false", value)
    return value


def _counted(value: Any, least: int, most: int) -> list[Any]:
    if not least <= len(entries(value)) <= most:
        raise WrongValue(f"{len(value)} entries, expected {least} to {most}")
    return list(value)


# The members of each kind of question besides those of all, and the options that they are.
KINDS: Mapping[str, tuple[Mapping[str, ReadValue], Callable[[Mapping[str, Any]], tuple[Option, ...]]]] = {
    PREDICATE: ({}, lambda found: ()),
    CHOICE: ({"choices": _options("value", _text_or_flag)}, lambda found: found["choices"]),
    SCORE: ({"levels": _options("label", text)}, lambda found: found["levels"]),
}
