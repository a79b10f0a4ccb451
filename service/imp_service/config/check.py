"""Checks values against the table of keys. Checked values are typed, in range, and have an origin."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher

from imp_service.config.errors import ConfigError
from imp_service.config.kinds import UnfitError, ValueKind
from imp_service.config.sources import Assignment
from imp_service.config.table import Key, Named, Node, Section, keys_of
from imp_service.config.toml import KeyPath, excerpt, read_value, write_literal, write_path
from imp_service.config.tree import KeyOrigin, OriginOf, Tree, Value, branch

# Names below this similarity are different words, not typing errors.
_MIN_SIMILARITY = 0.6


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:64].lower(), other.lower(), autojunk=False).ratio()


def nearest(word: str, known: Iterable[str]) -> str:
    return max(known, key=lambda name: _similarity(word, name))


def nearest_key(root: Section, siblings: Iterable[str], path: KeyPath) -> str:
    """The known key that is most similar to the unknown `path`.

    Prefers a sibling, then a key of a similar name in another section, then the nearest sibling.
    """
    last = path[-1]
    sibling = nearest(last, siblings)
    if _similarity(last, sibling) >= _MIN_SIMILARITY:
        return write_path((*path[:-1], sibling))
    everywhere = [known for known, _ in keys_of(root)]
    best = max(
        everywhere, key=lambda known: (_similarity(last, known[-1]), _similarity(".".join(path), ".".join(known)))
    )
    return write_path(best) if _similarity(last, best[-1]) >= _MIN_SIMILARITY else write_path((*path[:-1], sibling))


def check_document(root: Section, document: Mapping[str, object], origin_of: OriginOf) -> Tree:
    """The values of a whole parsed file."""
    tree = _check(root, root, document, (), origin_of)
    assert isinstance(tree, dict)
    return tree


def check_assignment(root: Section, assignment: Assignment) -> Tree:
    """The value of one environment variable or one `--set`."""

    def origin_of(_: KeyPath) -> KeyOrigin:
        return assignment.origin

    node: Node = root
    for end in range(1, len(assignment.path) + 1):
        node = _step(root, node, assignment.path[:end], origin_of)
    if isinstance(node, Key):
        leaf: Tree | Value = _read_text(node.kind, assignment)
    else:
        leaf = _check(root, node, read_value(assignment.text), assignment.path, origin_of)
    return branch(assignment.path, leaf)


def _step(root: Section, node: Node, path: KeyPath, origin_of: OriginOf) -> Node:
    """The node that the last name of `path` leads to from `node`."""
    name = path[-1]
    match node:
        case Section():
            if name in node.nodes:
                return node.nodes[name]
            known = nearest_key(root, node.nodes, path)
            raise ConfigError(origin_of(path).where(path), f"unknown key; nearest known: {known}")
        case Named():
            try:
                node.name.read(name)
            except UnfitError as unfit:
                raise ConfigError(origin_of(path).where(path), f"found {_shown(name)}, expected {unfit}") from None
            return node.item
        case Key():
            raise ConfigError(origin_of(path).where(path), f"unknown key; nearest known: {write_path(path[:-1])}")


def _check(root: Section, node: Node, raw: object, path: KeyPath, origin_of: OriginOf) -> Tree | Value:
    if isinstance(node, Key):
        return Value(_read(node.kind, raw, path, origin_of), origin_of(path))
    if isinstance(raw, str) and isinstance(node, Section) and node.shorthand:
        raw = {node.shorthand: raw}
    if not isinstance(raw, Mapping):
        section = "a section" if isinstance(node, Section) else "a table"
        raise ConfigError(origin_of(path).where(path), f"found {_shown(raw)}, expected {section} of keys")
    tree: Tree = {}
    for name, inner in raw.items():
        below = (*path, name)
        tree[name] = _check(root, _step(root, node, below, origin_of), inner, below, origin_of)
    return tree


def _read(kind: ValueKind[object], raw: object, path: KeyPath, origin_of: OriginOf) -> object:
    try:
        return kind.read(raw)
    except UnfitError as unfit:
        raise ConfigError(origin_of(path).where(path), f"found {_shown(raw)}, expected {unfit}") from None


def _read_text(kind: ValueKind[object], assignment: Assignment) -> Value:
    try:
        return Value(kind.read_text(assignment.text), assignment.origin)
    except UnfitError as unfit:
        found = excerpt(assignment.text, 60) or "nothing"
        raise ConfigError(assignment.origin.where(assignment.path), f"found {found}, expected {unfit}") from None


def _shown(raw: object) -> str:
    """A value for a message. Nested containers are only named, since they may be deep."""
    match raw:
        case int() if abs(raw) >= 10**30:
            return "a number of more than 30 digits"
        case Mapping():
            return "a table"
        case Sequence() if any(isinstance(item, Mapping | list) for item in raw):
            return "a list of lists or tables"
        case _:
            return excerpt(write_literal(raw), 60)
