"""Rules of fields that are messages: each reads the message as the Python API has it, and checks that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from google.protobuf.duration_pb2 import Duration

from imp_service.api.chat_prompt import PromptParts
from imp_service.api.errors import Violation
from imp_service.api.facts import findings
from imp_service.api.rules import Seconds, TokenIds, count_violations
from imp_service.pb import types_pb2
from imp_service.rpc import durations
from imp_service.rpc.imp_v1.requests.read_options import read_options
from imp_service.rpc.imp_v1.requests.read_requests import read_chat, read_infill, read_part
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.generation_rules import CHAT, INFILL, PARTS
from imp_service.serving.served_model import ServedModel
from imp_service.text.templates.chat_prompt import MAX_MESSAGES


def names_of(kind: type) -> list[str]:
    """The fields of a class."""
    return [field.name for field in fields(kind)]


class Options:
    """A message with the fields of option classes, which carry their rules."""

    def __init__(self, *kinds: type) -> None:
        self.kinds = kinds
        self.names = frozenset(name for kind in kinds for name in names_of(kind))

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        for kind in self.kinds:
            yield from findings(read_options(kind, value), served, path)


class OneContent:
    """Each message of a conversation has one content: null, a text, or parts, each of one kind."""

    def check(self, value: types_pb2.ChatPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        for i, message in enumerate(value.messages[:MAX_MESSAGES]):
            where = f"{path}.messages[{i}]"
            if message.null_content and (message.content or message.parts):
                yield Violation(f"{where}.null_content", "set, expected only without content")
            if message.parts and message.content:
                yield Violation(f"{where}.parts", "given with content, expected one of the two")
            yield from part_violations(message.parts, f"{where}.parts")


def part_violations(parts: Iterable[Any], path: str) -> Iterator[Violation]:
    """Parts of content or of a prompt that are of no kind, and images without content."""
    for i, part in enumerate(parts):
        if (kind := part.WhichOneof("kind")) is None:
            yield Violation(f"{path}[{i}]", "of no kind, expected " + kinds_of(part, "kind"))
        elif kind == "image" and part.image.WhichOneof("source") is None:
            yield Violation(f"{path}[{i}].image", "not set, expected " + kinds_of(part.image, "source"))


def kinds_of(message: Any, oneof: str) -> str:
    """The members of a oneof, for an error."""
    return "one of " + ", ".join(field.name for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields)


class PartsRule:
    """A prompt in parts."""

    def check(self, value: types_pb2.PromptParts, path: str, served: ServedModel) -> Iterator[Finding]:
        yield from part_violations(value.parts, f"{path}.parts")
        yield from PARTS.check(PromptParts(tuple(map(read_part, value.parts))), path, served)


class InfillRule:
    """A text with a gap."""

    def check(self, value: types_pb2.InfillPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        yield from INFILL.check(read_infill(value), path, served)


class ChatPromptRule(OneContent):
    """A conversation."""

    def check(self, value: types_pb2.ChatPrompt, path: str, served: ServedModel) -> Iterator[Finding]:
        yield from super().check(value, path, served)
        yield from CHAT.check(read_chat(value), path, served)


@dataclass(frozen=True, slots=True)
class DurationIn:
    """A duration in a range."""

    seconds: Seconds

    def check(self, value: Duration, path: str, served: ServedModel) -> Iterable[Finding]:
        if not durations.is_valid(value):
            return (Violation(path, f"{value.seconds} s and {value.nanos} ns, expected a valid duration"),)
        return self.seconds.check(durations.seconds_of(value), path, served)


@dataclass(frozen=True, slots=True)
class IdsOf:
    """The ids of a TokenIds message."""

    ids: TokenIds

    def check(self, value: types_pb2.TokenIds, path: str, served: ServedModel) -> Iterable[Finding]:
        return self.ids.check(value.ids, f"{path}.ids", served)


@dataclass(frozen=True, slots=True)
class Inputs:
    """At most `most` lists of ids, each a list of known tokens."""

    most: int | None
    each: IdsOf

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 0, self.most))
        if too_many:
            yield from too_many
            return
        for i, item in enumerate(value):
            yield from self.each.check(item, f"{path}[{i}]", served)
