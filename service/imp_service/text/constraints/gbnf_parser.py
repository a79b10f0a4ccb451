"""Parses GBNF grammars into rules, which gbnf.py checks and writes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits

MAX_RULES = 1_024


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set, as a class of the regular expressions' syntax."""

    pattern: str


@dataclass(frozen=True, slots=True)
class RuleReference:
    """Another rule."""

    rule: str
    offset: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Items in order; the empty sequence matches the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of several options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item `least` to `most` times; None: any number."""

    item: Node
    least: int
    most: int | None


Node = Characters | RuleReference | Sequence | Alternation | Repeat


def parse_gbnf(source: str, path: str, limits: TextLimits) -> dict[str, Node]:
    """The rules by name. Raises `FieldInvalid` with the offset of the error."""
    return _Parser(source, path, limits).parse()


class _Parser:
    """Recursive descent; depth is bounded before it is entered."""

    _ESCAPES: ClassVar[dict[str, str]] = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]"}
    _HEX: ClassVar[dict[str, int]] = {"x": 2, "u": 4, "U": 8}

    def __init__(self, source: str, path: str, limits: TextLimits) -> None:
        self._source = source
        self._path = path
        self._limits = limits
        self._position = 0
        self._depth = 0

    def parse(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self._skip(newlines=True)
        while self._peek():
            offset = self._position
            name = self._name()
            self._skip(newlines=False)
            self._expect("::=")
            self._skip(newlines=True)
            if name in rules:
                raise self._fail(f"rule {name[:64]!r} twice", offset)
            rules[name] = self._choice()
            if len(rules) > MAX_RULES:
                raise self._fail(f"more than {MAX_RULES} rules", offset)
            if self._peek() and self._peek() not in "\r\n":
                raise self._fail(f"unexpected {self._peek()!r}")
            self._skip(newlines=True)
        return rules

    def _fail(self, message: str, offset: int | None = None) -> FieldInvalid:
        return FieldInvalid(self._path, f"offset {self._position if offset is None else offset}: {message}")

    def _peek(self) -> str:
        return self._source[self._position : self._position + 1]

    def _expect(self, text: str) -> None:
        if not self._source.startswith(text, self._position):
            raise self._fail(f"expected {text!r}")
        self._position += len(text)

    def _skip(self, *, newlines: bool) -> None:
        while char := self._peek():
            if char == "#":
                end = self._source.find("\n", self._position)
                self._position = len(self._source) if end < 0 else end
            elif char in " \t" or (newlines and char in "\r\n"):
                self._position += 1
            else:
                return

    def _name(self) -> str:
        start = self._position
        while (char := self._peek()) and ((char.isascii() and char.isalnum()) or char in "-_"):
            self._position += 1
        if self._position == start:
            raise self._fail("expected a rule's name")
        return self._source[start : self._position]

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._peek() == "|":
            self._position += 1
            self._skip(newlines=True)
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while True:
            self._skip(newlines=self._depth > 0)
            char = self._peek()
            if not char or char in "|)\r\n":
                return items[0] if len(items) == 1 else Sequence(tuple(items))
            items.append(self._repeated(self._item()))

    def _item(self) -> Node:
        match self._peek():
            case '"':
                return self._literal()
            case "[":
                return self._class()
            case "(":
                return self._group()
            case ".":
                self._position += 1
                return Characters(r"[\s\S]")
        offset = self._position
        return RuleReference(self._name(), offset)

    def _group(self) -> Node:
        if self._depth >= self._limits.nesting:
            raise self._fail(f"nested more than {self._limits.nesting} deep")
        self._position += 1
        self._depth += 1
        self._skip(newlines=True)
        inner = self._choice()
        self._depth -= 1
        self._expect(")")
        return inner

    def _literal(self) -> Node:
        start = self._position
        self._position += 1
        chars: list[Node] = []
        while self._peek() != '"':
            if not self._peek() or self._peek() in "\r\n":
                raise self._fail("the string is not closed", start)
            chars.append(Characters(f"[{_class_char(self._char())}]"))
        self._position += 1
        return chars[0] if len(chars) == 1 else Sequence(tuple(chars))

    def _class(self) -> Node:
        start = self._position
        self._position += 1
        negates = self._peek() == "^"
        self._position += negates
        members: list[str] = []
        while self._peek() != "]":
            if not self._peek():
                raise self._fail("the class is not closed", start)
            first = self._char()
            if self._peek() == "-" and self._source[self._position + 1 : self._position + 2] not in ("]", ""):
                self._position += 1
                last = self._char()
                if last < first:
                    raise self._fail("the range runs backwards")
                members.append(f"{_class_char(first)}-{_class_char(last)}")
            else:
                members.append(_class_char(first))
        self._position += 1
        if not members:
            if negates:
                return Characters(r"[\s\S]")
            raise self._fail("the class is empty", start)
        return Characters(f"[{'^' * negates}{''.join(members)}]")

    def _char(self) -> str:
        char = self._peek()
        self._position += 1
        if char != "\\":
            return char
        kind = self._peek()
        self._position += 1
        if kind in self._ESCAPES:
            return self._ESCAPES[kind]
        n_digits = self._HEX.get(kind, 0)
        digits = self._source[self._position : self._position + n_digits]
        if not n_digits or len(digits) != n_digits or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self._fail(f"unknown escape \\{kind}", self._position - 2)
        self._position += n_digits
        point = int(digits, 16)
        if point > 0x10FFFF or 0xD800 <= point < 0xE000:
            raise self._fail(f"U+{point:X} is no character", self._position - n_digits)
        return chr(point)

    def _repeated(self, item: Node) -> Node:
        self._skip(newlines=self._depth > 0)
        while (char := self._peek()) and char in "*+?{":
            offset = self._position
            self._position += 1
            match char:
                case "*":
                    least, most = 0, None
                case "+":
                    least, most = 1, None
                case "?":
                    least, most = 0, 1
                case _:
                    least, most = self._counts(offset)
            item = Repeat(item, least, most)
            self._skip(newlines=self._depth > 0)
        return item

    def _counts(self, offset: int) -> tuple[int, int | None]:
        end = self._source.find("}", offset)
        parts = [part.strip() for part in self._source[offset + 1 : max(end, 0)].split(",")]
        if end < 0 or len(parts) > 2 or not all(p.isascii() and p.isdecimal() for p in (parts[0], parts[-1] or "0")):
            raise self._fail("bad repeat", offset)
        if any(len(part) > 9 or int(part or 0) > self._limits.repeat for part in parts):
            raise self._fail(f"repeat beyond the limit of {self._limits.repeat}", offset)
        self._position = end + 1
        least = int(parts[0])
        most = least if len(parts) == 1 else int(parts[1]) if parts[1] else None
        if most is not None and most < least:
            raise self._fail("bad repeat: the upper bound is below the lower bound", offset)
        return least, most


def _class_char(char: str) -> str:
    return f"\\x{{{ord(char):X}}}"
