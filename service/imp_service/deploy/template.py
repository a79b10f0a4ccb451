"""Edits values in the text of a YAML document; keeps comments, order and layout."""

import textwrap
from collections.abc import Sequence
from typing import Any

import yaml

Path = tuple[str | int, ...]


class Template:
    """One document. A path that does not exist raises KeyError or IndexError."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def data(self) -> Any:
        """The parsed document."""
        return yaml.safe_load(self.text)

    def set(self, path: Path, value: object) -> None:
        """Replaces a value on a single line."""
        node = _node_at(self._root(), path)
        assert node.start_mark.line == node.end_mark.line, f"{path}: a value of several lines"
        self._splice(node.start_mark.index, node.end_mark.index, _inline(value))

    def set_items(self, path: Path, items: Sequence[object]) -> None:
        """Replaces an empty list; each item gets a line."""
        node = _node_at(self._root(), path)
        indent = " " * (self._indent_of(node) + 2)
        self._splice(node.start_mark.index, node.end_mark.index, "".join(f"\n{indent}- {_inline(i)}" for i in items))

    def insert(self, path: Path, text: str) -> None:
        """Inserts lines, `key: value` or a list's item, before the line with the key or the item of `path`."""
        lines = self.text.splitlines(keepends=True)
        above = _node_at(self._root(), path[:-1])
        node = _pair(above, path[-1])[0] if isinstance(above, yaml.MappingNode) else _node_at(above, path[-1:])
        number = node.start_mark.line
        indent = len(lines[number]) - len(lines[number].lstrip())
        lines.insert(number, textwrap.indent(f"{text.rstrip()}\n", " " * indent))
        self.text = "".join(lines)

    def append(self, path: Path, item: object) -> None:
        """Adds a line to a list whose items are lines."""
        last = _node_at(self._root(), path).value[-1].start_mark.line
        lines = self.text.splitlines(keepends=True)
        indent = len(lines[last]) - len(lines[last].lstrip())
        lines.insert(last + 1, f"{' ' * indent}- {_inline(item)}\n")
        self.text = "".join(lines)

    def remove_item(self, path: Path) -> None:
        """Removes a list item on a single line, and the comment above it."""
        node = _node_at(self._root(), path)
        first = last = node.start_mark.line
        assert node.end_mark.line == last, f"{path}: an item of several lines"
        lines = self.text.splitlines(keepends=True)
        while lines[first - 1].lstrip().startswith("#"):
            first -= 1
        del lines[first : last + 1]
        self.text = "".join(lines)

    def _root(self) -> yaml.Node:
        root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        assert root is not None  # narrows: no base is empty
        return root

    def _indent_of(self, node: yaml.Node) -> int:
        line = self.text.splitlines()[node.start_mark.line]
        return len(line) - len(line.lstrip())

    def _splice(self, begin: int, end: int, text: str) -> None:
        before = self.text[:begin].rstrip(" ") if text.startswith("\n") else self.text[:begin]
        self.text = before + text + self.text[end:]


def _node_at(root: yaml.Node, path: Path) -> yaml.Node:
    node = root
    for step in path:
        node = _pair(node, step)[1] if isinstance(node, yaml.MappingNode) else node.value[step]
    return node


def _pair(node: yaml.Node, name: object) -> tuple[yaml.Node, yaml.Node]:
    for key, value in node.value:
        if key.value == name:
            return key, value
    raise KeyError(name)


def _inline(value: object) -> str:
    """The value in flow style, for a part of a line."""
    text: str = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.strip()[1:-1]
