"""Checked values under their names: what the sources set, before defaults fill the rest."""

from dataclasses import dataclass

from imp_service.config.origin import DEFAULT, Origin
from imp_service.config.toml import KeyPath


@dataclass(frozen=True, slots=True)
class Value:
    value: object
    origin: Origin


Tree = dict[str, "Tree | Value"]


def branch(path: KeyPath, leaf: "Tree | Value") -> Tree:
    """A tree with nothing but `leaf` at `path`."""
    tree: Tree = {path[-1]: leaf}
    return branch(path[:-1], tree) if len(path) > 1 else tree


def merged(low: Tree, high: Tree) -> Tree:
    """Both, where they meet the higher one; neither is changed."""
    result = dict(low)
    for name, node in high.items():
        below = low.get(name)
        result[name] = merged(below, node) if isinstance(below, dict) and isinstance(node, dict) else node
    return result


def value_at(tree: Tree, path: KeyPath) -> Value | None:
    """What was said of this key; None: nothing, or it is a section."""
    node: Tree | Value | None = tree
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, Value) else None


def origin_at(tree: Tree, path: KeyPath) -> Origin:
    """Where the value at `path` came from; for a section, its first value."""
    node: Tree | Value | None = tree
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    while isinstance(node, dict):
        node = next(iter(node.values()), None)
    return node.origin if node else DEFAULT
