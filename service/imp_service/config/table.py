"""How the table of keys is declared: every key is a field of a frozen dataclass, with its kind, default and text."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from imp_service.config.kinds import Kind
from imp_service.config.toml import KeyPath

T = TypeVar("T")
S = TypeVar("S")

# Stands for any name where a path leads through names that the user chooses, as models.NAME.path.
ANY_NAME = "NAME"

_NODE = "imp.conf"


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it may be, what it is when nobody sets it, and one line about it."""

    kind: Kind[object]
    default: object
    text: str
    # Shown, commented out, in the shipped file where the default is to be unset (None).
    example: object = None
    # A running server takes a new value; every other key needs a restart.
    reloads: bool = False
    # The shipped file shows it.
    shipped: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """A table of keys, read into `make`."""

    make: Callable[..., object]
    text: str
    nodes: Mapping[str, "Node"]
    # A key that a plain string in the section's place sets: rope_scaling = "none".
    shorthand: str | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A table whose names are the user's own: models.NAME, gemm."<pattern>"."""

    item: Key | Section
    text: str
    name: Kind[str]
    # A name shown in the shipped file.
    example: str


Node = Key | Section | Named


def key(
    kind: Kind[T], default: T, text: str, *, example: object = None, reloads: bool = False, shipped: bool = True
) -> T:
    """A field of a section. What it returns is a dataclass field; its type is the value's, for the type checker."""
    node = Key(kind, default, text, example, reloads, shipped)
    field: Any = dataclasses.field(default_factory=lambda: default, metadata={_NODE: node})
    return field  # type: ignore[no-any-return]


def section(make: Callable[[], S], text: str, *, shorthand: str | None = None) -> S:
    """A section within a section."""
    node = Section(make, text, nodes_of(make), shorthand)
    field: Any = dataclasses.field(default_factory=make, metadata={_NODE: node})
    return field  # type: ignore[no-any-return]


def named(
    item: Kind[T] | Callable[[], T], text: str, *, name: Kind[str], example: tuple[str, object]
) -> Mapping[str, T]:
    """A table of keys or sections whose names the user chooses; `example` is a name and, for keys, its value."""
    node = Key(item, None, text, example[1]) if isinstance(item, Kind) else Section(item, text, nodes_of(item))
    empty: Mapping[str, T] = MappingProxyType({})
    field: Any = dataclasses.field(default_factory=lambda: empty, metadata={_NODE: Named(node, text, name, example[0])})
    return field  # type: ignore[no-any-return]


def nodes_of(settings: Any) -> Mapping[str, Node]:
    """The nodes that a section's class declares, in the order of its fields."""
    return MappingProxyType({field.name: field.metadata[_NODE] for field in dataclasses.fields(settings)})


def find(root: Section, path: KeyPath) -> Node | None:
    """The node at `path`, names of the user's own included; None if no such key is known."""
    node: Node | None = root
    for name in path:
        match node:
            case Section():
                node = node.nodes.get(name)
            case Named():
                node = node.item
            case _:
                return None
    return node


def keys_of(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Key]]:
    """Every key below `node`, in the table's order; user-chosen names are ANY_NAME."""
    match node:
        case Key():
            yield path, node
        case Section():
            for name, inner in node.nodes.items():
                yield from keys_of(inner, (*path, name))
        case Named():
            yield from keys_of(node.item, (*path, ANY_NAME))
