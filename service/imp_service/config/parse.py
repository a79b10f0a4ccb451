"""Parses the text of imp.conf and finds the line of every key; an error names the line and its cause."""

import re
import tomllib
from collections.abc import Iterator, Mapping

from imp_service.config.check import nearest_key
from imp_service.config.errors import ConfigError
from imp_service.config.kinds import UnfitError
from imp_service.config.sources import FileLines
from imp_service.config.table import Key, Section, find
from imp_service.config.toml import KeyPath, excerpt, read_path, write_key, write_string

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
# tomllib takes quadratic time and memory for the parts of a key; the table's own keys have at most five.
MAX_PARTS = 16
_NEXT_PART = rf"[ \t]*\.[ \t]*{_PART}"
_NAME = rf"({_PART}(?:{_NEXT_PART}){{0,{MAX_PARTS - 1}}})"
_KEY = re.compile(rf"[ \t]*{_NAME}[ \t]*=")
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*{_NAME}[ \t]*\]")
_DEEP = re.compile(rf"[ \t]*(?:\[\[?[ \t]*)?{_PART}(?:{_NEXT_PART}){{{MAX_PARTS}}}")
# The tokens of a value. Strings and comments are single tokens, also a string that never ends: looking for its end
# again at each quote would take quadratic time.
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)'
    r'|"(?:[^"\\\n]|\\[^\n])*"?|\'[^\'\n]*\'?'
    r"|#[^\n]*|[\[\]{},\n]|[^\[\]{},\n\"'#]+",
    re.DOTALL,
)


class DeepKeyError(Exception):
    """A key of more than MAX_PARTS parts, with its line."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(line)


def statements(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Every header and key, inline tables included, with its line, in the text's order.

    For a text that is not TOML, finds what precedes the first error. Raises DeepKeyError.
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
    """The position after the line end that closes the value or line at `position`."""
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


_MESSAGE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_TWICE = re.compile(r"Cannot (overwrite|declare|mutate)|Duplicate")
_HAS_VALUE = re.compile(r"=[ \t]*([^\n#]*)")


def parse(root: Section, text: str, file: str) -> tuple[Mapping[str, object], FileLines]:
    """The document, and the lines of its keys. `root` describes what a malformed value should be."""
    try:
        places = list(statements(text))
        document = tomllib.loads(text)
    except DeepKeyError as deep:
        raise ConfigError(f"{file}:{deep.line}", f"found a key of more than {MAX_PARTS} parts") from None
    except RecursionError:
        raise ConfigError(file, "found lists within lists too deep to read") from None
    except ValueError as error:
        raise _located(root, text, file, places, str(error)) from None
    lines: dict[KeyPath, int] = {}
    for path, line in places:
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], line)
        lines[path] = line
    return document, FileLines(file, lines)


def _located(root: Section, text: str, file: str, places: list[tuple[KeyPath, int]], message: str) -> ConfigError:
    parts = _MESSAGE.fullmatch(message)
    if parts is None:  # an integer of more digits than Python converts
        return ConfigError(file, f"cannot be read: {excerpt(message, 80)}")
    line = int(parts[2]) if parts[2] else text.count("\n") + 1
    before = [(path, at) for path, at in places if at <= line]
    path, at = before[-1] if before else ((), 0)
    if not path or (at < line and not _TWICE.match(parts[1]) and parts[2]):
        return ConfigError(f"{file}:{line}", f"not TOML: {parts[1]}")
    where = FileLines(file, {path: at}).origin(path).where(path)
    if _TWICE.match(parts[1]):
        return ConfigError(where, "set twice")
    return ConfigError(where, _cause(root, path, text.splitlines()[at - 1], parts[1]))


def _cause(root: Section, path: KeyPath, line: str, message: str) -> str:
    """Why the value on `line` is not TOML, with what its key expects."""
    node = find(root, path)
    parent = find(root, path[:-1])
    if node is None and isinstance(parent, Section):
        return f"unknown key; nearest known: {nearest_key(root, parent.nodes, path)}"
    found = _HAS_VALUE.search(line)
    if not isinstance(node, Key) or found is None:
        return f"not TOML: {message}"
    raw = found[1].strip()
    if raw[:1] in ("", '"', "'", "[", "{"):
        return f"not TOML: {message}; expected {node.kind.expected}"
    try:
        node.kind.read_text(raw)
    except UnfitError as unfit:
        return f"found {excerpt(raw, 60)}, expected {unfit}"
    return f"strings need quotes: {write_key(path[-1])} = {excerpt(write_string(raw), 80)}"
