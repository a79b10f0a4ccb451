"""What a value of a request may be: rules as data. Each yields what is wrong with a value."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

from .errors import Violation

# Tokens that are checked at a time: about 0.5 ms of work.
PIECE_TOKENS = 8192
U32 = 2**32 - 1
U64 = 2**64 - 1
MAX_NAME_BYTES = 128
MAX_SHOWN = 80
_PRINTABLE = re.compile(r"[\x21-\x7E]*")


@dataclass(frozen=True, slots=True)
class Missing:
    """A feature that a value asks for, and why it is not there."""

    path: str
    message: str


Finding = Violation | Missing


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range. NaN is outside every range. `above` excludes the lower end, `whole` fractions."""

    low: float
    high: float
    above: bool = False
    whole: bool = False

    def check(self, path: str, value: float | None) -> Iterator[Violation]:
        """The violation of a value outside the range. An unset value has none."""
        if value is None:
            return
        if not isinstance(value, Integral if self.whole else Real) or isinstance(value, bool):
            yield Violation(path, f"{value!r}, expected a {'whole ' if self.whole else ''}number")
        elif not ((self.low < value if self.above else self.low <= value) and value <= self.high):
            yield Violation(path, f"{value}, expected {range_text(self.low, self.high, above=self.above)}")


def range_text(low: float, high: float, *, above: bool = False) -> str:
    """A range for messages; `above` excludes its lower end."""
    least, most = (int(each) if float(each).is_integer() else each for each in (low, high))
    return f"above {least} up to {most}" if above else f"{least} to {most}"


def shown(value: object) -> str:
    """The start of a value for messages: a text in quotes."""
    return repr(value[:MAX_SHOWN]) if isinstance(value, str) else repr(value)[:MAX_SHOWN]


class Limits(Protocol):
    """What values are checked against: the limits of the engine alone, or those of a server too."""

    @property
    def n_tokens(self) -> int:
        """Ids below it are tokens."""

    @property
    def vocab_size(self) -> int:
        """The size of a mask."""

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """The ranges of numbers that the core knows."""

    @property
    def words(self) -> Mapping[str, Collection[str]]:
        """The names of the features of each kind."""

    def most(self, name: str) -> float:
        """A limit by its name: one of the core, or the key of a setting. Infinity if there is none."""

    def lacks(self, feature: str) -> str:
        """Why a feature is not there; empty if it is."""


# A number, or the name of a limit.
Most = float | str


def resolve(most: Most, limits: Limits) -> float:
    """The number that a limit is."""
    return limits.most(most) if isinstance(most, str) else most


class Rule(ABC):
    """Checks a value that is set."""

    @abstractmethod
    def check(self, value: Any, path: str, limits: Limits) -> Iterable[Finding]:
        """Yields what is wrong with the value; nothing if it is valid."""


@dataclass(frozen=True, slots=True)
class Anything(Rule):
    """Any value of the type, or one that a rule of the whole request checks."""

    def check(self, value: Any, path: str, limits: Limits) -> Iterable[Finding]:
        return ()


ANYTHING = Anything()


@dataclass(frozen=True, slots=True)
class Number(Rule):
    """A number in a range."""

    bounds: Bounds

    def check(self, value: float, path: str, limits: Limits) -> Iterable[Finding]:
        return self.bounds.check(path, value)


@dataclass(frozen=True, slots=True)
class Core(Rule):
    """A number in a range that the core knows by this name."""

    name: str

    def check(self, value: float, path: str, limits: Limits) -> Iterable[Finding]:
        return limits.bounds[self.name].check(path, value)


@dataclass(frozen=True, slots=True)
class LimitedCount(Rule):
    """A number of tokens or bytes, up to a limit of the settings; zero there means no limit."""

    key: str = ""

    def check(self, value: int, path: str, limits: Limits) -> Iterator[Finding]:
        wrong = list(Bounds(0, U32, whole=True).check(path, value))
        yield from wrong
        most = limits.most(self.key) if self.key else 0
        if not wrong and most and value > most:
            yield Violation(path, f"{value}, expected at most {self.key} = {most}")


@dataclass(frozen=True, slots=True)
class Seconds(Rule):
    """A time in a range; `above` excludes the lower end."""

    low: float
    high: Most
    above: bool = False

    def check(self, value: float, path: str, limits: Limits) -> Iterator[Finding]:
        bounds = Bounds(self.low, resolve(self.high, limits), above=self.above)
        for each in bounds.check(path, value):
            yield Violation(each.path, f"{each.message} seconds")


@dataclass(frozen=True, slots=True)
class Text(Rule):
    """A text of `least` to `most` bytes."""

    least: int
    most: Most

    def check(self, value: str, path: str, limits: Limits) -> Iterator[Violation]:
        if not isinstance(value, str):
            yield Violation(path, f"{value!r}, expected a text")
            return
        try:
            n_bytes = len(value.encode())
        except UnicodeEncodeError as error:
            yield Violation(path, f"a surrogate at character {error.start}")
            return
        most = resolve(self.most, limits)
        if not self.least <= n_bytes <= most:
            yield Violation(path, f"{n_bytes} bytes, expected {range_text(self.least, most)}")


@dataclass(frozen=True, slots=True)
class Entries(Rule):
    """A list of `least` to `most` entries."""

    least: int
    most: int

    def check(self, value: Sized, path: str, limits: Limits) -> Iterable[Finding]:
        return count_violations(len(value), path, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Texts(Rule):
    """A list of texts: their number, the bytes of each, and of all together."""

    counts: tuple[int, int]
    each: Text
    total: Most | None = None

    def check(self, value: Sequence[str], path: str, limits: Limits) -> Iterator[Finding]:
        if isinstance(value, str):
            yield Violation(path, f"{value!r}, expected a list of texts")
            return
        wrong = list(count_violations(len(value), path, *self.counts))
        # Too many are not checked one by one.
        for i, text in enumerate(() if wrong else value):
            wrong += self.each.check(text, f"{path}[{i}]", limits)
        yield from wrong
        if self.total is None or wrong:
            return
        n_bytes, total = sum(len(text.encode()) for text in value), resolve(self.total, limits)
        if n_bytes > total:
            yield Violation(path, f"{n_bytes} bytes in all, expected at most {total}")


@dataclass(frozen=True, slots=True)
class Name(Rule):
    """An id that a caller chose: printable ASCII. A rule of the whole request checks whether it may be empty."""

    def check(self, value: str, path: str, limits: Limits) -> Iterator[Finding]:
        n_bytes = len(value.encode())
        if n_bytes > MAX_NAME_BYTES:
            yield Violation(path, f"{n_bytes} bytes, expected at most {MAX_NAME_BYTES}")
        elif not _PRINTABLE.fullmatch(value):
            yield Violation(path, "expected printable characters of ASCII, no space")


@dataclass(frozen=True, slots=True)
class Names(Rule):
    """At most `most` ids, none empty."""

    most: int

    def check(self, value: Sequence[str], path: str, limits: Limits) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 0, self.most))
        if too_many:
            yield from too_many
            return
        for i, name in enumerate(value):
            yield from Name().check(name, f"{path}[{i}]", limits)
            if not name:
                yield Violation(f"{path}[{i}]", "empty")


@dataclass(frozen=True, slots=True)
class TokenIds(Rule):
    """A list of token ids of the vocabulary."""

    least: int = 0
    most: Most | None = None

    def check(self, value: Sequence[int], path: str, limits: Limits) -> Iterable[Finding]:
        most = None if self.most is None else int(resolve(self.most, limits))
        wrong = list(count_violations(len(value), path, self.least, most))
        return wrong or token_violations(path, value, limits.n_tokens)


@dataclass(frozen=True, slots=True)
class TokenId(Rule):
    """A token id of the vocabulary."""

    def check(self, value: int, path: str, limits: Limits) -> Iterable[Finding]:
        return _token(path, value, limits.n_tokens)


@dataclass(frozen=True, slots=True)
class Biases(Rule):
    """Token id -> bias."""

    most: str
    bias: Core

    def check(self, value: Mapping[int, float], path: str, limits: Limits) -> Iterator[Finding]:
        too_many = list(count_violations(len(value), path, 0, int(limits.most(self.most))))
        if too_many:
            yield from too_many
            return
        for token, bias in value.items():
            yield from _token(f"{path}[{token}]", token, limits.n_tokens)
            yield from self.bias.check(bias, f"{path}[{token}]", limits)


@dataclass(frozen=True, slots=True)
class OneOf(Rule):
    """One of a few words, or one that begins with `prefix`."""

    words: Collection[str]
    prefix: str = ""

    def check(self, value: str, path: str, limits: Limits) -> Iterator[Finding]:
        if value in self.words or (self.prefix and isinstance(value, str) and value.startswith(self.prefix)):
            return
        known = ", ".join(filter(None, self.words)) + (f", or {self.prefix} with a name" if self.prefix else "")
        yield Violation(path, f"{shown(value)}, expected one of {known}")


@dataclass(frozen=True, slots=True)
class Feature(Rule):
    """A feature that may be switched off or not built: missing if the value asks for it."""

    name: str
    asks: Callable[[Any], bool] = bool

    def check(self, value: Any, path: str, limits: Limits) -> Iterator[Finding]:
        if self.asks(value) and (why := limits.lacks(self.name)):
            yield Missing(path, why)


@dataclass(frozen=True, slots=True)
class Features(Rule):
    """A choice among features of one kind, by their names."""

    kind: str

    def check(self, value: Sequence[str], path: str, limits: Limits) -> Iterator[Finding]:
        if isinstance(value, str):
            yield Violation(path, f"{value!r}, expected a list")
            return
        words = limits.words[self.kind]
        wrong: list[Finding] = list(count_violations(len(value), path, 0, len(words)))
        for i, name in enumerate(() if wrong else value):
            wrong += OneOf(words).check(name, f"{path}[{i}]", limits)
        yield from wrong
        reasons = [] if wrong else [limits.lacks(f"{self.kind}.{name}") for name in value]
        yield from (Missing(path, why) for why in [each for each in reasons if each][:1])


@dataclass(frozen=True, slots=True)
class Both(Rule):
    """Two rules on one value."""

    first: Rule
    second: Rule

    def check(self, value: Any, path: str, limits: Limits) -> Iterator[Finding]:
        yield from self.first.check(value, path, limits)
        yield from self.second.check(value, path, limits)


class Mask(Rule):
    """A mask has a bit for each id of the vocabulary; at least one is set, and none beyond the tokens."""

    def check(self, value: bytes, path: str, limits: Limits) -> Iterator[Finding]:
        expected = (limits.vocab_size + 7) // 8
        if not value:
            return
        if len(value) != expected:
            yield Violation(path, f"{len(value)} bytes, expected {expected}")
        elif not any(value):
            yield Violation(path, "allows no token")
        elif int.from_bytes(value, "little") >> limits.n_tokens:
            yield Violation(path, f"a bit at or above {limits.n_tokens}, the number of tokens")


def count_violations(n: int, path: str, least: int, most: int | None) -> Iterator[Violation]:
    """The violation of a wrong number of entries. The caller then checks none of the entries."""
    if n < least or (most is not None and n > most):
        expected = range_text(least, most) if most is not None else f"at least {least}"
        yield Violation(path, f"{n} entries, expected {expected}")


def token_violations(path: str, tokens: Sequence[int], n_tokens: int) -> Iterator[Violation]:
    """The violations of ids that are not tokens."""
    for first, piece in token_pieces(tokens):
        if set(map(type, piece)) == {int} and min(piece) >= 0 and max(piece) < n_tokens:
            continue  # faster than each alone
        for i, token in enumerate(piece, first):
            yield from _token(f"{path}[{i}]", token, n_tokens)


def token_pieces(tokens: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """The tokens in pieces, each with its index. Between two pieces other threads can run."""
    for first in range(0, len(tokens), PIECE_TOKENS):
        yield first, tokens[first : first + PIECE_TOKENS]


def _token(path: str, token: object, n_tokens: int) -> Iterator[Violation]:
    if not isinstance(token, Integral) or isinstance(token, bool):
        yield Violation(path, f"{token!r}, expected a token id")
    elif not 0 <= int(token) < n_tokens:
        yield Violation(path, f"token {token}, expected below {n_tokens}, the number of tokens")
