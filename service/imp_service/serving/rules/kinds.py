"""Kinds of field rules. Each yields what is wrong with a field's value."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from imp_service.api.errors import Violation
from imp_service.generation.validate import Bounds, count_violations, token_violations
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import ServedModel

# A refusal is raised only if there is no violation.
Finding = Violation | Refusal
Limit = Callable[[ServedModel], float]

_PRINTABLE = re.compile(r"[\x21-\x7E]*")
MAX_NAME_BYTES = 128
MAX_MODEL_NAME_BYTES = 256


class Rule(ABC):
    """Checks a field that is set."""

    @abstractmethod
    def check(self, value: Any, path: str, served: ServedModel) -> Iterable[Finding]:
        """Yields the findings about the value; none if it is valid."""


@dataclass(frozen=True, slots=True)
class Anything(Rule):
    """Any value of the type, or one that a rule of the whole request checks."""

    def check(self, value: Any, path: str, served: ServedModel) -> Iterable[Finding]:
        return ()


@dataclass(frozen=True, slots=True)
class Number(Rule):
    """A number in a range."""

    bounds: Bounds

    def check(self, value: float, path: str, served: ServedModel) -> Iterable[Finding]:
        return self.bounds.check(path, value)


@dataclass(frozen=True, slots=True)
class AtMost(Rule):
    """A number up to a limit of the settings; zero there means no limit."""

    limit: Limit
    what: str

    def check(self, value: int, path: str, served: ServedModel) -> Iterator[Finding]:
        limit = self.limit(served)
        if limit and value > limit:
            yield Violation(path, f"{value}, expected at most {self.what} = {limit}")


@dataclass(frozen=True, slots=True)
class Seconds(Rule):
    """A time in a range; `above` excludes the lower end."""

    low: float
    high: Limit
    above: bool = False

    def check(self, value: float, path: str, served: ServedModel) -> Iterator[Finding]:
        bounds = Bounds(self.low, self.high(served), above=self.above)
        for each in bounds.check(path, value):
            yield Violation(each.path, f"{each.message} seconds")


@dataclass(frozen=True, slots=True)
class Text(Rule):
    """A text of `least` to `most` bytes."""

    least: int
    most: Limit

    def check(self, value: str, path: str, served: ServedModel) -> Iterator[Finding]:
        n_bytes, most = len(value.encode()), self.most(served)
        if not self.least <= n_bytes <= most:
            yield Violation(path, f"{n_bytes} bytes, expected {self.least} … {most}")


@dataclass(frozen=True, slots=True)
class Entries(Rule):
    """A list of `least` to `most` entries."""

    least: int
    most: int

    def check(self, value: Sized, path: str, served: ServedModel) -> Iterable[Finding]:
        return count_violations(len(value), path, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Texts(Rule):
    """A list of texts: their number, the bytes of each, and of all together."""

    counts: tuple[int, int]
    each: Text
    total: Limit | None = None

    def check(self, value: Sequence[str], path: str, served: ServedModel) -> Iterator[Finding]:
        wrong = list(count_violations(len(value), path, *self.counts))
        if wrong:
            # Too many are not checked one by one.
            yield from wrong
            return
        for i, text in enumerate(value):
            yield from self.each.check(text, f"{path}[{i}]", served)
        total = None if self.total is None else self.total(served)
        n_bytes = sum(len(text.encode()) for text in value)
        if total is not None and n_bytes > total:
            yield Violation(path, f"{n_bytes} bytes in all, expected at most {total}")


@dataclass(frozen=True, slots=True)
class Name(Rule):
    """An id that a caller chose: printable ASCII. A rule of the whole request checks whether it may be empty."""

    def check(self, value: str, path: str, served: ServedModel) -> Iterator[Finding]:
        n_bytes = len(value.encode())
        if n_bytes > MAX_NAME_BYTES:
            yield Violation(path, f"{n_bytes} bytes, expected at most {MAX_NAME_BYTES}")
        elif not _PRINTABLE.fullmatch(value):
            yield Violation(path, "expected printable characters of ASCII, no space")


@dataclass(frozen=True, slots=True)
class Names(Rule):
    """At most `most` ids, none empty."""

    most: int

    def check(self, value: Sequence[str], path: str, served: ServedModel) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 0, self.most))
        if too_many:
            yield from too_many
            return
        for i, name in enumerate(value):
            yield from Name().check(name, f"{path}[{i}]", served)
            if not name:
                yield Violation(f"{path}[{i}]", "empty")


@dataclass(frozen=True, slots=True)
class ModelName(Rule):
    """A name of the served model."""

    def check(self, value: str, path: str, served: ServedModel) -> Iterator[Finding]:
        n_bytes = len(value.encode())
        if n_bytes > MAX_MODEL_NAME_BYTES:
            yield Violation(path, f"{n_bytes} bytes, expected at most {MAX_MODEL_NAME_BYTES}")
        elif value not in served.names:
            names = ", ".join(served.names)
            yield Refusal("MODEL_NOT_SERVED", f"{path}: this model is not served here", {"served": names})


@dataclass(frozen=True, slots=True)
class TokenIds(Rule):
    """A list of token ids of the vocabulary."""

    counts: tuple[int, int | None] = (0, None)

    def check(self, value: Sequence[int], path: str, served: ServedModel) -> Iterable[Finding]:
        wrong = list(count_violations(len(value), path, *self.counts))
        return wrong or token_violations(path, value, served.n_tokens)


@dataclass(frozen=True, slots=True)
class Both(Rule):
    """Two rules on one field."""

    first: Rule
    second: Rule

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        yield from self.first.check(value, path, served)
        yield from self.second.check(value, path, served)


@dataclass(frozen=True, slots=True)
class Feature(Rule):
    """A feature that is switched off or not built: refused if the value requests it."""

    is_on: Callable[[ServedModel], bool]
    asks: Callable[[Any], bool]
    words: str

    def check(self, value: Any, path: str, served: ServedModel) -> Iterator[Finding]:
        if self.asks(value) and not self.is_on(served):
            yield Refusal("FEATURE_DISABLED", f"{path}: {self.words}", {"feature": path})
