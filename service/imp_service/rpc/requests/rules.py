"""Kinds of field rules: each says what a field's value may be, and yields what is wrong with one."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.duration_pb2 import Duration

from imp_service.generation.validate import Bounds, Violation, count_violations, token_violations
from imp_service.pb import types_pb2
from imp_service.rpc import durations
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import Terms

# A refusal stands for a later stage of the checks: it counts where no field is wrong.
Finding = Violation | Refusal
Limit = Callable[[Terms], float]

_PRINTABLE = re.compile(r"[\x21-\x7E]*")
MAX_NAME_BYTES = 128
MAX_MODEL_NAME_BYTES = 256


class Rule(ABC):
    """Judges a field that is set."""

    @abstractmethod
    def check(self, value: Any, path: str, terms: Terms) -> Iterable[Finding]:
        """What is wrong; nothing where the value may stand."""


@dataclass(frozen=True, slots=True)
class Anything(Rule):
    """Whatever the type can hold, or what is checked with the message it is in."""

    def check(self, value: Any, path: str, terms: Terms) -> Iterable[Finding]:
        return ()


@dataclass(frozen=True, slots=True)
class Number(Rule):
    """In a range."""

    bounds: Bounds

    def check(self, value: float, path: str, terms: Terms) -> Iterable[Finding]:
        return self.bounds.check(path, shortest(value) if isinstance(value, float) else value)


@dataclass(frozen=True, slots=True)
class Below(Rule):
    """At most what the settings say; no bound where they say zero."""

    limit: Limit
    what: str

    def check(self, value: int, path: str, terms: Terms) -> Iterator[Finding]:
        limit = self.limit(terms)
        if limit and value > limit:
            yield Violation(path, f"{value}, expected at most {self.what} = {limit}")


@dataclass(frozen=True, slots=True)
class Span(Rule):
    """A duration in a range; `above` excludes the lower end."""

    low: float
    high: Limit
    above: bool = False

    def check(self, value: Duration, path: str, terms: Terms) -> Iterable[Finding]:
        if not durations.is_valid(value):
            return (Violation(path, f"{value.seconds} s and {value.nanos} ns, expected a valid duration"),)
        bounds = Bounds(self.low, self.high(terms), above=self.above)
        found = bounds.check(path, durations.seconds_of(value))
        return (Violation(each.path, f"{each.message} seconds") for each in found)


@dataclass(frozen=True, slots=True)
class Text(Rule):
    """Of so many bytes."""

    least: int
    most: Limit

    def check(self, value: str, path: str, terms: Terms) -> Iterator[Finding]:
        n_bytes, most = len(value.encode()), self.most(terms)
        if not self.least <= n_bytes <= most:
            yield Violation(path, f"{n_bytes} bytes, expected {self.least} … {most}")


@dataclass(frozen=True, slots=True)
class Texts(Rule):
    """So many texts, each of so many bytes, and so many together."""

    counts: tuple[int, int]
    each: Text
    total: Limit | None = None

    def check(self, value: Sequence[str], path: str, terms: Terms) -> Iterator[Finding]:
        wrong = list(count_violations(len(value), path, *self.counts))
        if wrong:
            # However many there are, they are not looked at.
            yield from wrong
            return
        for i, text in enumerate(value):
            yield from self.each.check(text, f"{path}[{i}]", terms)
        total = None if self.total is None else self.total(terms)
        n_bytes = sum(len(text.encode()) for text in value)
        if total is not None and n_bytes > total:
            yield Violation(path, f"{n_bytes} bytes in all, expected at most {total}")


@dataclass(frozen=True, slots=True)
class Name(Rule):
    """An id that a caller chose: printable ASCII. Where it may not be empty, that is checked with the message."""

    def check(self, value: str, path: str, terms: Terms) -> Iterator[Finding]:
        n_bytes = len(value.encode())
        if n_bytes > MAX_NAME_BYTES:
            yield Violation(path, f"{n_bytes} bytes, expected at most {MAX_NAME_BYTES}")
        elif not _PRINTABLE.fullmatch(value):
            yield Violation(path, "expected printable characters of ASCII, no space")


@dataclass(frozen=True, slots=True)
class Names(Rule):
    """At most so many ids, none empty."""

    most: int

    def check(self, value: Sequence[str], path: str, terms: Terms) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 0, self.most))
        if too_many:
            yield from too_many
            return
        for i, name in enumerate(value):
            yield from Name().check(name, f"{path}[{i}]", terms)
            if not name:
                yield Violation(f"{path}[{i}]", "empty")


@dataclass(frozen=True, slots=True)
class ModelName(Rule):
    """One that is served."""

    def check(self, value: str, path: str, terms: Terms) -> Iterator[Finding]:
        n_bytes = len(value.encode())
        if n_bytes > MAX_MODEL_NAME_BYTES:
            yield Violation(path, f"{n_bytes} bytes, expected at most {MAX_MODEL_NAME_BYTES}")
        elif value not in terms.names:
            served = ", ".join(terms.names)
            yield Refusal("MODEL_NOT_SERVED", f"{path}: this model is not served here", {"served": served})


@dataclass(frozen=True, slots=True)
class TokenIds(Rule):
    """Ids of the vocabulary, so many of them, in a TokenIds message or as they are."""

    counts: tuple[int, int | None] = (0, None)

    def check(self, value: Any, path: str, terms: Terms) -> Iterable[Finding]:
        ids: Sequence[int] = value
        if isinstance(value, types_pb2.TokenIds):
            path, ids = f"{path}.ids", value.ids
        wrong = list(count_violations(len(ids), path, *self.counts))
        return wrong or token_violations(path, ids, terms.n_tokens)


@dataclass(frozen=True, slots=True)
class KnownEnum(Rule):
    """A value that the enum has."""

    known: frozenset[int]

    def check(self, value: int, path: str, terms: Terms) -> Iterator[Finding]:
        if value not in self.known:
            yield Violation(path, f"{value}, expected one of {sorted(self.known)}")


@dataclass(frozen=True, slots=True)
class Both(Rule):
    """Two rules on one field."""

    first: Rule
    second: Rule

    def check(self, value: Any, path: str, terms: Terms) -> Iterator[Finding]:
        yield from self.first.check(value, path, terms)
        yield from self.second.check(value, path, terms)


@dataclass(frozen=True, slots=True)
class Switch(Rule):
    """A feature that the settings, or its absence, switch off: refused where the value asks for it."""

    is_on: Callable[[Terms], bool]
    asks: Callable[[Any], bool]
    words: str

    def check(self, value: Any, path: str, terms: Terms) -> Iterator[Finding]:
        if self.asks(value) and not self.is_on(terms):
            yield Refusal("FEATURE_DISABLED", f"{path}: {self.words}", {"feature": path})


def shortest(value: float) -> float:
    """A 32-bit float as the shortest decimal that means it: what the caller wrote, so that bounds are the caller's."""
    return float(str(np.float32(value)))
