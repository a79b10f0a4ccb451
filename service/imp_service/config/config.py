"""The settings in effect, with the origin of each value."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from imp_service.config.kinds import AUTO
from imp_service.config.settings import TABLE, Settings
from imp_service.config.table import Key, Named, Node, Section
from imp_service.config.toml import KeyPath, write_path
from imp_service.config.tree import DEFAULT, KeyOrigin, Tree, Value, branch, merged


def build(tree: Tree) -> Settings:
    settings = _build(TABLE, tree)
    assert isinstance(settings, Settings)
    return settings


def _build(node: Node, tree: Tree | Value) -> object:
    match node:
        case Key():
            assert isinstance(tree, Value)
            return tree.value
        case Section():
            assert isinstance(tree, dict)
            # The section's class has the defaults of keys that the tree does not set.
            return node.make(**{name: _build(node.nodes[name], inner) for name, inner in tree.items()})
        case _:
            assert isinstance(tree, dict)
            return MappingProxyType({name: _build(node.item, inner) for name, inner in tree.items()})


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value in effect."""

    path: KeyPath
    key: Key
    value: object
    origin: KeyOrigin

    @property
    def name(self) -> str:
        return write_path(self.path)


@dataclass(frozen=True, slots=True)
class Config:
    settings: Settings
    # The file that was read; None where there is none.
    file: Path | None
    # Never modified: `resolve` makes a new tree.
    tree: Tree

    def entries(self) -> Iterator[Entry]:
        """Every key in the order of the table, including those under names that the user chose."""
        yield from _entries(TABLE, (), self.tree)

    def resolve(self, path: KeyPath, value: object, reason: str) -> "Config":
        """A copy with the `auto` at `path` replaced by `value`; the reason becomes its origin."""
        if all(entry.value is not AUTO for entry in self.entries() if entry.path == path):
            raise ValueError(f"{write_path(path)} is not auto")
        tree = merged(self.tree, branch(path, Value(value, KeyOrigin("auto", reason))))
        return Config(build(tree), self.file, tree)


def _entries(node: Node, path: KeyPath, tree: Tree | Value | None) -> Iterator[Entry]:
    match node:
        case Key():
            known = tree if isinstance(tree, Value) else Value(node.default, DEFAULT)
            yield Entry(path, node, known.value, known.origin)
        case Section():
            for name, inner in node.nodes.items():
                yield from _entries(inner, (*path, name), tree.get(name) if isinstance(tree, dict) else None)
        case Named():
            for name, below in tree.items() if isinstance(tree, dict) else ():
                yield from _entries(node.item, (*path, name), below)
