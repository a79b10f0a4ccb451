"""Kinds of field rules that only messages of protobuf need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from imp_service.api.errors import Violation
from imp_service.api.float32 import shortest
from imp_service.pb import types_pb2
from imp_service.rpc import durations
from imp_service.serving.rules.kinds import Finding, Number, Rule, Seconds, TokenIds
from imp_service.serving.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class Float(Rule):
    """A 32-bit float."""

    number: Number

    def check(self, value: float, path: str, served: ServedModel) -> Iterable[Finding]:
        return self.number.check(shortest(value), path, served)


@dataclass(frozen=True, slots=True)
class DurationIn(Rule):
    """A duration in a range."""

    seconds: Seconds

    def check(self, value: Duration, path: str, served: ServedModel) -> Iterable[Finding]:
        if not durations.is_valid(value):
            return (Violation(path, f"{value.seconds} s and {value.nanos} ns, expected a valid duration"),)
        return self.seconds.check(durations.seconds_of(value), path, served)


@dataclass(frozen=True, slots=True)
class IdsOf(Rule):
    """The ids of a TokenIds message."""

    ids: TokenIds

    def check(self, value: types_pb2.TokenIds, path: str, served: ServedModel) -> Iterable[Finding]:
        return self.ids.check(value.ids, f"{path}.ids", served)


@dataclass(frozen=True, slots=True)
class KnownEnum(Rule):
    """A known value of an enum."""

    known: frozenset[int]

    def check(self, value: int, path: str, served: ServedModel) -> Iterator[Finding]:
        if value not in self.known:
            yield Violation(path, f"{value}, expected one of {sorted(self.known)}")
