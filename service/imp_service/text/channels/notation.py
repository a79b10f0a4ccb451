"""Arguments that a model writes in a notation of its own in place of JSON, described as data and converted to JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Generator
from dataclasses import dataclass

# The longest number, literal or name without quotes, and the most containers within each other.
MAX_BARE = 1024
MAX_DEPTH = 64
_BLANKS = b" \t\r\n"
_DELIMITERS = b",()[]{}"
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}
# Number of hexadecimal digits of an escape of a character by its number.
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}

_Steps = Generator[None, int, None]


@dataclass(frozen=True)
class Notation:
    """How arguments are written: NAME SIGN VALUE, separated by commas, and `close` after the last one."""

    close: str
    sign: str
    # What begins and ends a string. The first one is what a constraint forces.
    quotes: tuple[str, ...]
    # Strings have the escapes of Python, and the keys of inner objects are strings.
    is_python: bool
    # The texts of true, false and null that a constraint forces.
    literals: tuple[str, str, str]


JSON_LITERALS = ("true", "false", "null")
_PYTHON_LITERALS = ("True", "False", "None")
# Models write either in each notation.
_JSON_OF = dict(zip(JSON_LITERALS + _PYTHON_LITERALS, 2 * JSON_LITERALS, strict=True))
# Gemma 4: {key:<|"|>text<|"|>,key:1}, after the opening brace.
GEMMA = Notation("}", ":", ('<|"|>',), is_python=False, literals=JSON_LITERALS)
# The arguments of a call in Python: (key="text", key=1), after the opening parenthesis.
PYTHON = Notation(")", "=", ('"', "'"), is_python=True, literals=_PYTHON_LITERALS)


class _Broken(Exception):
    """The text does not follow the notation."""


class NotationReader:
    """Finds the end of one call's arguments, and converts them to a JSON object incrementally."""

    def __init__(self, notation: Notation) -> None:
        self._notation = notation
        self._quotes = tuple(quote.encode() for quote in notation.quotes)
        self._written: list[str] = []
        # The current byte: the first one that no step has read.
        self._byte = 0
        self._steps = self._arguments()
        next(self._steps)

    def feed(self, data: bytes) -> int | None:
        """The end of the arguments in `data`; None if they do not end there. Wrong text ends them too."""
        for n, byte in enumerate(data):
            try:
                self._steps.send(byte)
            except StopIteration:
                return n + 1
            except _Broken:
                return n
        return None

    def take(self) -> str:
        """The JSON that was not taken yet."""
        text = "".join(self._written)
        self._written.clear()
        return text

    # Steps. Each begins at the current byte, and makes the first byte that it does not read the current one.

    def _next(self) -> _Steps:
        self._byte = yield

    def _blanks(self) -> _Steps:
        while self._byte in _BLANKS:
            yield from self._next()

    def _expect(self, text: str | bytes) -> _Steps:
        for byte in text.encode() if isinstance(text, str) else text:
            if self._byte != byte:
                raise _Broken
            yield from self._next()

    def _arguments(self) -> _Steps:
        yield from self._next()
        self._written.append("{")
        yield from self._pairs(self._notation.close, self._notation.sign, 1)
        self._written.append("}")

    def _pairs(self, close: str, sign: str, depth: int) -> _Steps:
        """The pairs up to `close`, which stays the current byte."""
        separator = ""
        yield from self._blanks()
        while self._byte != ord(close):
            if separator:
                yield from self._comma()
                if self._byte == ord(close):
                    break
            self._written.append(separator)
            yield from self._key(sign)
            yield from self._blanks()
            yield from self._expect(sign)
            self._written.append(": ")
            yield from self._blanks()
            yield from self._value(depth)
            separator = ", "

    def _items(self, depth: int) -> _Steps:
        separator = ""
        yield from self._blanks()
        while self._byte != ord("]"):
            if separator:
                yield from self._comma()
                if self._byte == ord("]"):
                    break
            self._written.append(separator)
            yield from self._value(depth)
            separator = ", "

    def _comma(self) -> _Steps:
        yield from self._expect(",")
        yield from self._blanks()

    def _key(self, sign: str) -> _Steps:
        if (quote := self._quote()) is not None:
            yield from self._string(quote)
        else:
            self._written.append(json.dumps((yield from self._bare(sign.encode())), ensure_ascii=False))

    def _value(self, depth: int) -> _Steps:
        """A value, and the white space after it."""
        if (quote := self._quote()) is not None:
            yield from self._string(quote)
        elif self._byte in b"{[":
            yield from self._container(depth + 1)
        else:
            self._written.append(self._scalar((yield from self._bare(_DELIMITERS))))
        yield from self._blanks()

    def _container(self, depth: int) -> _Steps:
        if depth > MAX_DEPTH:
            raise _Broken
        is_object = self._byte == ord("{")
        self._written.append("{" if is_object else "[")
        yield from self._next()
        yield from self._pairs("}", ":", depth) if is_object else self._items(depth)
        self._written.append("}" if is_object else "]")
        yield from self._next()

    def _quote(self) -> bytes | None:
        return next((quote for quote in self._quotes if quote[0] == self._byte), None)

    def _string(self, quote: bytes) -> _Steps:
        yield from self._expect(quote)
        self._written.append('"')
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            if self._byte == ord("\\") and self._notation.is_python:
                yield from self._escape()
                continue
            n_matched = 0
            while n_matched < len(quote) and self._byte == quote[n_matched]:
                n_matched += 1
                if n_matched < len(quote):
                    yield from self._next()
            if n_matched == len(quote):
                break
            if n_matched:
                # The current byte may begin the quote again.
                self._write_text(decoder.decode(quote[:n_matched]))
                continue
            self._write_text(decoder.decode(bytes([self._byte])))
            yield from self._next()
        self._write_text(decoder.decode(b"", True))
        self._written.append('"')
        yield from self._next()

    def _escape(self) -> _Steps:
        yield from self._next()
        letter = chr(self._byte)
        if letter in _HEX_DIGITS:
            yield from self._next()
            yield from self._numbered(_HEX_DIGITS[letter])
        elif letter in _ESCAPED or letter in "\\'\"":
            self._write_text(_ESCAPED.get(letter, letter))
            yield from self._next()
        else:
            # Python keeps a backslash that begins no escape.
            self._write_text("\\")

    def _numbered(self, n_digits: int) -> _Steps:
        number = 0
        for _ in range(n_digits):
            if chr(self._byte) not in "0123456789abcdefABCDEF":
                raise _Broken
            number = 16 * number + int(chr(self._byte), 16)
            yield from self._next()
        if number > 0x10FFFF:
            raise _Broken
        # Two escapes may be the halves of one character: JSON joins them.
        self._written.append(json.dumps(chr(number))[1:-1])

    def _bare(self, delimiters: bytes) -> Generator[None, int, str]:
        """A text without quotes, up to a delimiter."""
        found = bytearray()
        while self._byte not in delimiters and self._quote() is None:
            if len(found) == MAX_BARE:
                raise _Broken
            found.append(self._byte)
            yield from self._next()
        text = found.decode("utf-8", "replace").strip(_BLANKS.decode())
        if not text:
            raise _Broken
        return text

    def _scalar(self, text: str) -> str:
        literal = _JSON_OF.get(text)
        if literal is not None:
            return literal
        try:
            json.loads(text, parse_constant=_refuse)
        except ValueError:
            return json.dumps(text, ensure_ascii=False)
        return text

    def _write_text(self, text: str) -> None:
        self._written.append(json.dumps(text, ensure_ascii=False)[1:-1])


def _refuse(name: str) -> object:
    raise ValueError(name)
