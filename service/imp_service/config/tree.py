"""A tree of checked values, each with its origin: what the sources set, before defaults fill the rest."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from imp_service.config.toml import KeyPath, excerpt, write_path


@dataclass(frozen=True, slots=True)
class KeyOrigin:
    source: Literal["default", "file", "environment", "--set", "--model", "option", "auto"]
    # File and line, a variable, an option, or the reason for the value that replaced `auto`.
    place: str = ""

    def __str__(self) -> str:
        if self.source in ("file", "environment", "option"):
            return self.place
        return f"{self.source}: {self.place}" if self.place else self.source

    def where(self, path: KeyPath) -> str:
        """How an error names the value at `path` from this origin: file:line:key, or the name of an option."""
        if self.source in ("option", "--model"):
            return str(self)
        key = excerpt(write_path(path), 100)
        place = excerpt(self.place, 100, keep="end")
        if not place:
            return f"{self.source} {key}"
        return f"{place}: {key}" if self.source == "environment" else f"{place}:{key}"


DEFAULT = KeyOrigin("default")

# Returns the origin of the value at a path.
OriginOf = Callable[[KeyPath], KeyOrigin]


@dataclass(frozen=True, slots=True)
class Value:
    value: object
    origin: KeyOrigin


Tree = dict[str, "Tree | Value"]


def branch(path: KeyPath, leaf: "Tree | Value") -> Tree:
    """A tree that holds only `leaf` at `path`."""
    tree: Tree = {path[-1]: leaf}
    return branch(path[:-1], tree) if len(path) > 1 else tree


def merged(low: Tree, high: Tree) -> Tree:
    """A merged copy; values of `high` replace those of `low`."""
    result = dict(low)
    for name, node in high.items():
        below = low.get(name)
        result[name] = merged(below, node) if isinstance(below, dict) and isinstance(node, dict) else node
    return result


def value_at(tree: Tree, path: KeyPath) -> Value | None:
    """The value at `path`; None if it is unset or a section."""
    node: Tree | Value | None = tree
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, Value) else None


def origin_at(tree: Tree, path: KeyPath) -> KeyOrigin:
    """The origin of the value at `path`; for a section, that of its first value."""
    node: Tree | Value | None = tree
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    while isinstance(node, dict):
        node = next(iter(node.values()), None)
    return node.origin if node else DEFAULT
