"""Finds the line of every key in a TOML text: tomllib gives values without places."""

import re
from collections.abc import Iterator

from imp_service.config.toml import KeyPath, read_path

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
# tomllib takes quadratic time and memory for the parts of a key; the table's own keys have at most five.
MAX_PARTS = 16
_NEXT_PART = rf"[ \t]*\.[ \t]*{_PART}"
_NAME = rf"({_PART}(?:{_NEXT_PART}){{0,{MAX_PARTS - 1}}})"
_KEY = re.compile(rf"[ \t]*{_NAME}[ \t]*=")
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*{_NAME}[ \t]*\]")
_DEEP = re.compile(rf"[ \t]*(?:\[\[?[ \t]*)?{_PART}(?:{_NEXT_PART}){{{MAX_PARTS}}}")
# What stands in a value: strings and comments as wholes, so that nothing inside them counts. A string that never ends
# is a whole too: looking for its end again at each quote would take quadratic time.
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)'
    r'|"(?:[^"\\\n]|\\[^\n])*"?|\'[^\'\n]*\'?'
    r"|#[^\n]*|[\[\]{},\n]|[^\[\]{},\n\"'#]+",
    re.DOTALL,
)


class DeepKeyError(Exception):
    """A key of more than MAX_PARTS parts; it has the line."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(line)


def statements(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Every header and key, inline tables included, with its line, in the text's order.

    A text that is not TOML may be given: what precedes its first fault is found. Raises DeepKeyError.
    """
    table: KeyPath = ()
    position, line = 0, 1
    while position < len(text):
        header, found = _HEADER.match(text, position), _KEY.match(text, position)
        if header and (path := read_path(header[1])) is not None:
            table = path
            yield path, line
            position = header.end()
        elif found and (path := read_path(found[1])) is not None:
            yield (*table, *path), line
            yield from _inside((*table, *path), text, found.end(), line)
            position = found.end()
        elif _DEEP.match(text, position):
            raise DeepKeyError(line)
        end = _end_of_value(text, position)
        line += text.count("\n", position, end)
        position = end


def _end_of_value(text: str, position: int) -> int:
    """Just behind the line end that closes the value or the rest of a line that begins at `position`."""
    depth = 0
    for token in _TOKEN.finditer(text, position):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "\n" and depth <= 0:
            return token.end()
    return len(text)


def _inside(path: KeyPath, text: str, position: int, line: int) -> Iterator[tuple[KeyPath, int]]:
    """The keys of the inline tables in the value of `path`; those in arrays have no path of their own."""
    enclosing: list[KeyPath | None] = []
    current: KeyPath | None = path
    end = _end_of_value(text, position)
    while position < end and (token := _TOKEN.match(text, position)):
        line += token[0].count("\n")
        position = token.end()
        if token[0] in "[{":
            enclosing.append(current if token[0] == "{" else None)
            current = None
        elif token[0] in "]}" and enclosing:
            enclosing.pop()
        if token[0] not in "{," or not enclosing:
            continue
        if _DEEP.match(text, position):
            raise DeepKeyError(line)
        if (outer := enclosing[-1]) and (found := _KEY.match(text, position)):
            name = read_path(found[1])
            current = (*outer, *name) if name else None
            position = found.end()
            if current:
                yield current, line
