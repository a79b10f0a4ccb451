"""Parses JSON from a caller strictly: with limits of size, depth and parts, and without NaN and repeated keys.

The library's parser holds Python's lock until it has read everything. So long lists of numbers, and long strings with
escapes, are cut out of the text and parsed in pieces: other threads run in between.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from imp_service.text.errors import FieldInvalid

# The most objects, lists, strings and commas, without those in long lists. Each takes up to a hundred bytes of memory,
# and may be two bytes of text.
MAX_PARTS = 128 * 1024
# A longer list without strings, lists and objects is cut out, and so is a longer string with escapes.
LONG_CHARS = 1024
# The size of the pieces.
PIECE_CHARS = 16 * 1024
# The most characters that are searched at once, without a chance for other threads.
WINDOW_CHARS = 256 * 1024
_PART = re.compile(r'["\[{\]}]')
# A part of a string: it ends at the closing quotation mark, or after so many escapes. Both halves of a pair of
# surrogates are in the same part.
_PIECE = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+){0,4096}+(?:(?=\\u[dD][c-fC-F])\\.[^"\\]*+)?', re.DOTALL)
_AFTER_KEY = re.compile(r"[ \t\n\r]*:")
# Digits of the numbers that stand in for lists. Nobody can guess them.
STAND_IN_DIGITS = 30


def parse_strict_json(text: str, path: str, *, max_bytes: int, max_depth: int) -> object:
    """The value; `FieldInvalid` names `path`."""
    n_bytes = len(text.encode("utf-8", "surrogatepass"))
    if n_bytes > max_bytes:
        raise FieldInvalid(path, f"{n_bytes} bytes, limit {max_bytes}")
    # Before parsing: the library's parser recurses, and takes memory for each part.
    long_values = _LongValues(text, _cut(text, path, max_depth))

    def refuse_constant(name: str) -> object:
        raise FieldInvalid(path, f"{name} is not JSON")

    def number(digits: str) -> object:
        found = long_values.take(digits)
        if found is not None:
            return found
        value = float(digits)
        if not math.isfinite(value):
            raise FieldInvalid(path, f"number {digits[:32]} is out of range")
        return value

    def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise FieldInvalid(path, f"key {repeated[:64]!r} occurs twice")
        return members

    decoder = json.JSONDecoder(object_pairs_hook=without_repeats, parse_constant=refuse_constant, parse_float=number)
    long_values.parse = decoder.decode
    long_values.parse_quickly = json.JSONDecoder(parse_constant=refuse_constant).decode

    try:
        value: object = decoder.decode(long_values.shortened)
        # Escapes may spell half a character.
        for each in _strings(value, long_values.ids):
            if not each.isascii():
                each.encode()
    except _PieceError as error:
        raise FieldInvalid(path, f"not JSON: {error.message} at character {error.position}") from error
    except json.JSONDecodeError as error:
        position = long_values.position(error.pos)
        raise FieldInvalid(path, f"not JSON: {error.msg} at character {position}") from error
    except UnicodeEncodeError as error:
        raise FieldInvalid(path, "contains an unpaired surrogate") from error
    except ValueError as error:
        raise FieldInvalid(path, f"not JSON: {error}") from error
    return value


def _cut(text: str, path: str, max_depth: int) -> list[tuple[int, int]]:
    """The places of long lists that have no part, and of long strings with escapes. Raises FieldInvalid at a limit.

    Brackets count whether or not they match.
    """
    depth = n_parts = 0
    found: list[tuple[int, int]] = []
    opened = None  # where the last part begins, if it is a list
    end, place = 0, _next_part(text, 0)
    while place is not None:
        sign = text[place]
        is_long = sign == "]" and opened is not None and place - opened > LONG_CHARS
        n_parts += sign not in "]}" if is_long else (sign not in "]}") + text.count(",", end, place)
        if n_parts > MAX_PARTS:
            raise FieldInvalid(path, f"more than {MAX_PARTS} objects, lists, strings and commas")
        end = place + 1
        if is_long and opened is not None:
            found.append((opened, end))
        opened = place if sign == "[" else None
        if sign == '"':
            end = _end_of_string(text, place)
            has_escapes = end - place > LONG_CHARS and text.find("\\", place, end) >= 0
            if has_escapes and text[end - 1 : end] == '"' and not _AFTER_KEY.match(text, end):
                found.append((place, end))
        else:
            depth += 1 if sign in "[{" else -1
            if depth > max_depth:
                raise FieldInvalid(path, f"nested more than {max_depth} deep")
        place = _next_part(text, end)
    return found


def _next_part(text: str, start: int) -> int | None:
    for first in range(start, len(text), WINDOW_CHARS):
        match = _PART.search(text, first, first + WINDOW_CHARS)
        if match is not None:
            return match.start()
    return None


def _end_of_string(text: str, start: int) -> int:
    """The place after the quotation mark that ends a string; one after the end of the text if none does."""
    end = text.find('"', start + 1)
    if end < 0:
        return len(text) + 1
    if text.find("\\", start + 1, end) < 0:
        return end + 1
    *_, (_, end) = _pieces_of_string(text, start + 1)
    return end + 1


def _pieces_of_string(text: str, first: int) -> Iterator[tuple[int, int]]:
    """The places of a string's parts, without the quotation mark that ends it."""
    while True:
        match = _PIECE.match(text, first)
        assert match is not None  # narrows: the pattern matches an empty text
        yield match.span()
        if match.end() == first or text[match.end() : match.end() + 1] != "\\":
            return
        first = match.end()


class _PieceError(Exception):
    """A piece is not JSON."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


@dataclass(slots=True)
class _StandIn:
    """What stands in the shortened text for a value."""

    digits: str
    first: int
    last: int


class _LongValues:
    """The long lists and strings of a text. In the shortened text a number stands for each, in their order."""

    def __init__(self, text: str, places: Sequence[tuple[int, int]]) -> None:
        secret = secrets.randbelow(10**STAND_IN_DIGITS) if places else 0
        self._text = text
        self._stand_ins = [_StandIn(f"0.{secret:0{STAND_IN_DIGITS}d}{i}", *each) for i, each in enumerate(places)]
        self._by_digits = {each.digits: each for each in self._stand_ins}
        # Refuses what the caller may not send; the second one does not look at each number for that.
        self.parse: Callable[[str], object] = json.loads
        self.parse_quickly: Callable[[str], object] = json.loads
        # Of the lists that were taken.
        self.ids: set[int] = set()
        ends = [0, *(each.last for each in self._stand_ins)]
        firsts = [*(each.first for each in self._stand_ins), len(text)]
        between = [text[end:first] for end, first in zip(ends, firsts, strict=True)]
        digits = [f" {each.digits} " for each in self._stand_ins]
        # Spaces keep a number apart from what stands beside it.
        self.shortened = "".join(chain(*zip(between, [*digits, ""], strict=True))) if places else text

    def take(self, digits: str) -> object:
        """What a number stands for; None if it is a plain number. Raises _PieceError."""
        stand_in = self._by_digits.get(digits)
        if stand_in is None:
            return None
        if self._text[stand_in.first] == '"':
            pieces = _pieces_of_string(self._text, stand_in.first + 1)
            return "".join([str(self._parsed(first, end, '"', '"')) for first, end in pieces])
        values: list[object] = []
        for first, end in self._pieces_of_list(stand_in):
            piece = self._parsed(first, end, "[", "]")
            assert isinstance(piece, list)  # narrows
            if math.inf in piece or -math.inf in piece:
                self.parse(f"[{self._text[first:end]}]")
            # Between two commas there is a value.
            if not piece and (first, end) != (stand_in.first + 1, stand_in.last - 1):
                raise _PieceError("Expecting value", first)
            values += piece
        self.ids.add(id(values))
        return values

    def _pieces_of_list(self, stand_in: _StandIn) -> Iterator[tuple[int, int]]:
        first, last = stand_in.first + 1, stand_in.last - 1
        while (comma := self._text.find(",", first + PIECE_CHARS, last)) >= 0:
            yield first, comma
            first = comma + 1
        yield first, last

    def _parsed(self, first: int, end: int, before: str, after: str) -> object:
        try:
            return self.parse_quickly(f"{before}{self._text[first:end]}{after}")
        except json.JSONDecodeError as error:
            raise _PieceError(error.msg, first - 1 + error.pos) from error

    def position(self, shortened: int) -> int:
        """The place in the text of a place in the shortened text."""
        longer = 0
        for each in self._stand_ins:
            if each.first - longer >= shortened:
                break
            longer += each.last - each.first - len(f" {each.digits} ")
        return shortened + longer


def _strings(value: object, without: set[int]) -> Iterator[str]:
    """Every string of a value, except in the lists with these ids, which have none."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from each
            waiting.extend(each.values())
        elif isinstance(each, list) and id(each) not in without:
            waiting.extend(each)
