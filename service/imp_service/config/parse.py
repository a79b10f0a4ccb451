"""Text of imp.conf to values under their names, with the place and the cause of whatever is not TOML."""

import re
import tomllib
from collections.abc import Mapping

from imp_service.config.errors import ConfigError
from imp_service.config.kinds import UnfitError
from imp_service.config.locate import MAX_PARTS, DeepKeyError, statements
from imp_service.config.nearest import nearest_key
from imp_service.config.sources import FileLines
from imp_service.config.table import Key, Section, find
from imp_service.config.toml import KeyPath, excerpt, write_key, write_string

_MESSAGE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_TWICE = re.compile(r"Cannot (overwrite|declare|mutate)|Duplicate")
_HAS_VALUE = re.compile(r"=[ \t]*([^\n#]*)")


def parse(root: Section, text: str, file: str) -> tuple[Mapping[str, object], FileLines]:
    """The document and its places; `root` is only asked what a malformed value should have been."""
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
    """Why the value on `line` is not TOML, in the words of the key it belongs to."""
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
