"""Reads every source of settings in its order of precedence: the result is whole, checked and frozen, or its errors."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.check import check_assignment, check_document
from imp_service.config.config import Config, build
from imp_service.config.contradictions import contradictions
from imp_service.config.errors import ConfigError
from imp_service.config.files import candidates, read_first
from imp_service.config.parse import parse
from imp_service.config.settings import TABLE, Settings
from imp_service.config.sources import Assignment, FileLines, read_assignment, read_environment
from imp_service.config.table import Named, Node, Section
from imp_service.config.tree import Tree, merged, origin_at

# Each unknown key is compared with every known one. A file of so many is no imp.conf.
MOST_ERRORS = 100


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings, or what is wrong with them."""

    config: Config | None  # where there are errors, of the good keys alone
    errors: tuple[ConfigError, ...]
    is_whole: bool = True  # no: there were so many errors that the rest was not read


class _EnoughError(Exception):
    """As many errors as were asked for."""


def load(
    option: str | None = None,
    assignments: Iterable[str | Assignment] = (),
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Config:
    """The settings of `--config`, of the texts of `--set`, of the environment and of the file; raises ConfigError.

    `variables` stand in for the process's own, `root` for the root of the file system.
    """
    reading = read(option, assignments, variables=variables, root=root, most_errors=1)
    if reading.config is None or reading.errors:
        raise reading.errors[0]
    return reading.config


def read(
    option: str | None = None,
    assignments: Iterable[str | Assignment] = (),
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    most_errors: int = MOST_ERRORS,
) -> Reading:
    """As load(), with every error up to so many; raises the one of a file that cannot be read at all."""
    environment = read_environment(variables)
    found = read_first(candidates(option, environment, root))
    tree: Tree = {}
    document: Mapping[str, object] = {}
    lines = FileLines("", {})
    errors: list[ConfigError] = []

    def take(check: Callable[[], Tree]) -> None:
        nonlocal tree
        try:
            tree = merged(tree, check())
        except ConfigError as error:
            errors.append(error)
            if len(errors) == most_errors:
                raise _EnoughError from None

    if found is not None:
        file, text = found
        document, lines = parse(TABLE, text, str(file))
    try:
        for part in _parts(TABLE, document):
            take(lambda part=part: check_document(TABLE, part, lines.origin))  # type: ignore[misc]
        for assignment in (*environment.assignments, *assignments):
            take(lambda said=assignment: check_assignment(TABLE, _assignment(said)))  # type: ignore[misc]
    except _EnoughError:
        return Reading(None, tuple(errors), is_whole=False)
    settings = build(tree)
    if not errors:
        errors.extend(_contradictions(tree, settings, lines))
    return Reading(Config(settings, found[0] if found else None, tree), tuple(errors))


def _assignment(said: str | Assignment) -> Assignment:
    return read_assignment(said) if isinstance(said, str) else said


def _parts(node: Node, raw: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """A document as documents of one key each, so that what is wrong with one hides nothing of another."""
    for name, inner in raw.items():
        below = node.nodes.get(name) if isinstance(node, Section) else node.item if isinstance(node, Named) else None
        if isinstance(below, Section | Named) and isinstance(inner, Mapping) and inner:
            yield from ({name: part} for part in _parts(below, inner))
        else:
            yield {name: inner}


def _contradictions(tree: Tree, settings: Settings, lines: FileLines) -> Iterator[ConfigError]:
    for one, other, why in contradictions(settings):
        blamed = next((path for path in (one, other) if origin_at(tree, path).source != "default"), None)
        if blamed is None:  # an empty section of the file: what is missing in it has no place of its own
            yield ConfigError(lines.origin(one).where(one), why)
        else:
            yield ConfigError(origin_at(tree, blamed).where(blamed), why)
