"""Kinds of values: each reads a TOML value, describes what it expects, and writes a value as TOML."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

from imp_service.config.toml import read_value, write_literal

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class Auto(Enum):
    """The value `auto`: imp resolves it once, from the machine or the model, and reports the result."""

    AUTO = "auto"


AUTO: Final = Auto.AUTO


class UnfitError(Exception):
    """A value that its kind does not allow. The message says what is expected."""


class ValueKind(ABC, Generic[T_co]):
    """A set of allowed values. Kinds are constants of the table and have no state."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The set in words, as the end of `found 12abc, expected …`."""

    @property
    def allowed(self) -> str:
        """The set in short form for the comments of imp.conf; empty if the key's text is enough."""
        return self.expected

    @abstractmethod
    def read(self, raw: object) -> T_co:
        """The value of what `tomllib` returned; raises UnfitError."""

    def read_text(self, text: str) -> T_co:
        """The value of the text of an environment variable or of `--set`; raises UnfitError."""
        return self.read(read_value(text))

    def plain(self, value: object) -> object:
        """Returns the TOML value for a value of this kind: the inverse of `read`."""
        return value

    def write(self, value: object) -> str:
        return write_literal(self.plain(value))


class Boolean(ValueKind[bool]):
    expected = "true or false"
    allowed = ""

    def read(self, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise UnfitError(self.expected)
        return raw


class Integer(ValueKind[int]):
    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    @property
    def expected(self) -> str:
        return f"a whole number from {self.allowed}"

    @property
    def allowed(self) -> str:
        return f"{self.least} to {self.most}"

    def read(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not self.least <= raw <= self.most:
            raise UnfitError(self.expected)
        return raw


class Real(ValueKind[float]):
    """A range; `above` excludes its lower end."""

    def __init__(self, least: float, most: float, *, above: bool = False) -> None:
        self.least, self.most, self.above = least, most, above

    @property
    def expected(self) -> str:
        return f"a number{', ' if self.above else ' from '}{self.allowed}"

    @property
    def allowed(self) -> str:
        return f"above {self.least:g} up to {self.most:g}" if self.above else f"{self.least:g} to {self.most:g}"

    def read(self, raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise UnfitError(self.expected)
        # NaN must be outside of every range. Integers are compared without conversion, since 10^400 has no float.
        is_high_enough = self.least < raw if self.above else self.least <= raw
        if not (is_high_enough and raw <= self.most) or not math.isfinite(raw):
            raise UnfitError(self.expected)
        return float(raw)


class Enumeration(ValueKind[U]):
    """One of the listed values. `unlisted` values are accepted, but not documented."""

    def __init__(self, *values: U, unlisted: Sequence[U] = ()) -> None:
        self.values = values
        self.unlisted = unlisted

    @property
    def expected(self) -> str:
        words = [write_literal(value) for value in self.values]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

    def read(self, raw: object) -> U:
        for value in (*self.values, *self.unlisted):
            if type(value) is type(raw) and value == raw:
                return value
        raise UnfitError(self.expected)


class Joined(ValueKind[str]):
    """One or several of the given words, joined with +."""

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def expected(self) -> str:
        return f"{self.allowed}, a string"

    @property
    def allowed(self) -> str:
        words = [write_literal(word) for word in self.words]
        return f'{", ".join(words[:-1])} or {words[-1]}, or some joined as "{"+".join(self.words[-2:])}"'

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or any(word not in self.words for word in raw.split("+")):
            raise UnfitError(self.expected)
        return raw


class String(ValueKind[str]):
    """A string; in the environment and in `--set` the text is the value, or a string of TOML if it is one."""

    def __init__(self, what: str, *, pattern: str | None = None, most_bytes: int = 4096) -> None:
        self.what, self.most_bytes = what, most_bytes
        self.pattern = re.compile(pattern) if pattern else None

    @property
    def expected(self) -> str:
        return f"{self.what}, a string"

    @property
    def allowed(self) -> str:
        return ""

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not self._holds(raw):
            raise UnfitError(self.expected)
        return raw

    def read_text(self, text: str) -> str:
        return self.read(read_value(text) if text[:1] in ('"', "'") else text)

    def _holds(self, text: str) -> bool:
        if not text or any(character < " " or character == "\x7f" for character in text):
            return False
        try:
            size_bytes = len(text.encode())
        except UnicodeEncodeError:  # bytes of the environment that are not UTF-8
            return False
        return size_bytes <= self.most_bytes and (self.pattern is None or self.pattern.fullmatch(text) is not None)


class ListOf(ValueKind[tuple[U, ...]]):
    def __init__(self, item: ValueKind[U], most: int) -> None:
        self.item, self.most = item, most

    @property
    def expected(self) -> str:
        return f"a list of at most {self.most}, each {self.item.expected}"

    @property
    def allowed(self) -> str:
        return f"at most {self.most}"

    def read(self, raw: object) -> tuple[U, ...]:
        if not isinstance(raw, Sequence) or isinstance(raw, str) or len(raw) > self.most:
            raise UnfitError(self.expected)
        try:
            return tuple(self.item.read(item) for item in raw)
        except UnfitError:
            raise UnfitError(self.expected) from None

    def read_text(self, text: str) -> tuple[U, ...]:
        try:
            return self.read(read_value(text))
        except UnfitError:
            raise UnfitError(f"{self._as_list(text)}{self.expected}") from None

    def _as_list(self, text: str) -> str:
        """The list of this text alone, to show how a list is written; empty if it is no item."""
        try:
            return f"{self.write((self.item.read_text(text),))}, "
        except UnfitError:
            return ""

    def plain(self, value: object) -> object:
        return [self.item.plain(item) for item in value] if isinstance(value, tuple) else value


class AutoOr(ValueKind[U | Auto]):
    """`"auto"`, or a value of another kind."""

    def __init__(self, kind: ValueKind[U]) -> None:
        self.kind = kind

    @property
    def expected(self) -> str:
        return f'"auto" or {self.kind.expected}'

    @property
    def allowed(self) -> str:
        return self.kind.allowed

    def read(self, raw: object) -> U | Literal[Auto.AUTO]:
        return self._or_auto(raw, self.kind.read)

    def read_text(self, text: str) -> U | Literal[Auto.AUTO]:
        return self._or_auto(read_value(text), lambda _: self.kind.read_text(text))

    def _or_auto(self, raw: object, read: Callable[[object], U]) -> U | Literal[Auto.AUTO]:
        if raw == AUTO.value:
            return AUTO
        try:
            return read(raw)
        except UnfitError as error:
            raise UnfitError(f'"auto" or {error}') from None

    def plain(self, value: object) -> object:
        return AUTO.value if value is AUTO else self.kind.plain(value)
