"""Declares the table of keys: every key is a field of a frozen dataclass, with its kind, default and description."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from imp_service.config.kinds import ValueKind
from imp_service.config.toml import KeyPath

T = TypeVar("T")
S = TypeVar("S")

# Placeholder for a name that the user chooses, as in models.NAME.path.
ANY_NAME = "NAME"

_NODE = "imp.conf"


@dataclass(frozen=True, slots=True)
class Key:
    """One key: the kind of its value, its default, and one line of description."""

    kind: ValueKind[object]
    default: object
    text: str
    # The value in the shipped imp.conf, commented out, if the default is None (unset).
    example: object = None
    # A running server takes a new value at a reload; other keys need a restart.
    reloads: bool = False
    # False: the shipped imp.conf does not show it.
    shipped: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """A table of keys, read into `make`."""

    make: Callable[..., object]
    text: str
    nodes: Mapping[str, "Node"]
    # The key that a plain string in place of the section sets: rope_scaling = "none".
    shorthand: str | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A table with names that the user chooses: models.NAME, gemm."<pattern>"."""

    item: Key | Section
    text: str
    name: ValueKind[str]
    # A name shown in the shipped file.
    example: str


Node = Key | Section | Named


def key(
    kind: ValueKind[T], default: T, text: str, *, example: object = None, reloads: bool = False, shipped: bool = True
) -> T:
    """Declares a key. Returns a dataclass field, typed as the value for the type checker."""
    node = Key(kind, default, text, example, reloads, shipped)
    field: Any = dataclasses.field(default_factory=lambda: default, metadata={_NODE: node})
    return field  # type: ignore[no-any-return]


def section(make: Callable[[], S], text: str, *, shorthand: str | None = None) -> S:
    """Declares a section within a section."""
    node = Section(make, text, nodes_of(make), shorthand)
    field: Any = dataclasses.field(default_factory=make, metadata={_NODE: node})
    return field  # type: ignore[no-any-return]


def named(
    item: ValueKind[T] | Callable[[], T], text: str, *, name: ValueKind[str], example: tuple[str, object]
) -> Mapping[str, T]:
    """A table of keys or sections whose names the user chooses; `example` is a name and, for keys, its value."""
    node = Key(item, None, text, example[1]) if isinstance(item, ValueKind) else Section(item, text, nodes_of(item))
    empty: Mapping[str, T] = MappingProxyType({})
    field: Any = dataclasses.field(default_factory=lambda: empty, metadata={_NODE: Named(node, text, name, example[0])})
    return field  # type: ignore[no-any-return]


def nodes_of(settings: Any) -> Mapping[str, Node]:
    """The nodes that a section's class declares, in the order of its fields."""
    return MappingProxyType({field.name: field.metadata[_NODE] for field in dataclasses.fields(settings)})


def find(root: Section, path: KeyPath) -> Node | None:
    """The node at `path`, which may include names that the user chose; None for an unknown key."""
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
