"""Kinds of values that carry a unit: sizes in bytes, counts, and durations."""

import re
from datetime import timedelta
from fractions import Fraction

from imp_service.config.kinds import UnfitError, ValueKind

# Powers of 1024 only. "MB" and "k" are refused: half of their readers mean the other power.
_POWERS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
# Bounded: converting many digits is slow.
_NUMBER = r"([0-9]{1,20}(?:\.[0-9]{1,20})?)"
_COUNT = re.compile(_NUMBER + r" ?(?:([KMGT])i?)?")
_SIZE = re.compile(_NUMBER + r" ?(?:([KMGT])(?:iB?)?|B)?")
_DURATION = re.compile(_NUMBER + r" ?(ms|s|m|h)")
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}


def write_size(value: int) -> int | str:
    """The shortest exact form of a number of bytes: 4 MiB, 500."""
    for letter in ("T", "G", "M", "K"):
        if value and value % _POWERS[letter] == 0:
            return f"{value // _POWERS[letter]} {letter}iB"
    return value


def write_duration(value: timedelta) -> str:
    microseconds = value // timedelta(microseconds=1)
    if microseconds and microseconds % (3600 * 10**6) == 0:
        return f"{microseconds // (3600 * 10**6)}h"
    return f"{microseconds // 10**6}s" if microseconds % 10**6 == 0 else f"{microseconds / 1000:.15g}ms"


class Count(ValueKind[int]):
    """A number of things; a string may use K, M, G or Ki, Mi, Gi, all of them powers of 1024."""

    pattern = _COUNT
    example = '"32K"'

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    @property
    def expected(self) -> str:
        return f"{self.allowed}, as a whole number or as {self.example}"

    @property
    def allowed(self) -> str:
        return f"{self.plain(self.least)} to {self.plain(self.most)}"

    def read(self, raw: object) -> int:
        number = self._number(raw)
        if number is None or not self.least <= number <= self.most:
            raise UnfitError(self.expected)
        return number

    def _number(self, raw: object) -> int | None:
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        parts = self.pattern.fullmatch(raw) if isinstance(raw, str) else None
        if parts is None:
            return None
        exact = Fraction(parts[1]) * (_POWERS[parts[2]] if parts[2] else 1)
        return exact.numerator if exact.denominator == 1 else None


class Size(Count):
    """A number of bytes: an integer, or a string such as "8GiB", "64 KiB" or "32K"."""

    pattern = _SIZE
    example = '"8GiB"'

    def plain(self, value: object) -> object:
        return write_size(value) if isinstance(value, int) else value


class Duration(ValueKind[timedelta]):
    """A length of time, always with its unit: "5ms", "30s", "10m", "1h"."""

    def __init__(self, least: str, most: str) -> None:
        self.least, self.most = _duration(least), _duration(most)

    @property
    def expected(self) -> str:
        return f'{self.allowed}, with its unit, such as "30s", "5ms" or "1h"'

    @property
    def allowed(self) -> str:
        return f"{write_duration(self.least)} to {write_duration(self.most)}"

    def read(self, raw: object) -> timedelta:
        try:
            value = _duration(raw) if isinstance(raw, str) else None
        except ValueError:
            value = None
        if value is None or not self.least <= value <= self.most:
            raise UnfitError(self.expected)
        return value

    def plain(self, value: object) -> object:
        return write_duration(value) if isinstance(value, timedelta) else value


def _duration(text: str) -> timedelta:
    parts = _DURATION.fullmatch(text)
    if parts is None:
        raise ValueError(text)
    microseconds = Fraction(parts[1]) * _SECONDS[parts[2]] * 10**6
    if microseconds.denominator != 1 or microseconds.numerator > 10**15:
        raise ValueError(text)
    return timedelta(microseconds=microseconds.numerator)
