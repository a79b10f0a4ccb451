"""Reads all sources of settings in their order of precedence: the result is complete and checked, or errors."""

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
from imp_service.config.tree import KeyOrigin, Tree, Value, branch, merged, origin_at

# An unknown key is compared with every known key, so many errors would take long.
MOST_ERRORS = 100
# The keys of [listen] that add no listener.
NO_ADDRESSES = {"reflection", "compat"}


@dataclass(frozen=True, slots=True)
class SettingsAndErrors:
    """The settings, or their errors."""

    config: Config | None  # if there are errors, with the valid keys only
    errors: tuple[ConfigError, ...]
    is_whole: bool = True  # False: reading stopped after MOST_ERRORS errors


class _EnoughError(Exception):
    """Reading reached the limit of errors."""


def read_settings(
    option: str | None = None,
    assignments: Iterable[str | Assignment] = (),
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Config:
    """The settings of `--config`, of the texts of `--set`, of the environment and of the file; raises ConfigError.

    `variables` stand in for the process's own, `root` for the root of the file system.
    """
    reading = read_with_errors(option, assignments, variables=variables, root=root, most_errors=1)
    if reading.config is None or reading.errors:
        raise reading.errors[0]
    return reading.config


def read_with_errors(
    option: str | None = None,
    assignments: Iterable[str | Assignment] = (),
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    most_errors: int = MOST_ERRORS,
) -> SettingsAndErrors:
    """Collects up to `most_errors` errors. Raises ConfigError only for a file that cannot be read."""
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
            take(lambda each=assignment: check_assignment(TABLE, _assignment(each)))  # type: ignore[misc]
    except _EnoughError:
        return SettingsAndErrors(None, tuple(errors), is_whole=False)
    tree = merged(tree, _listeners(tree))
    settings = build(tree)
    if not errors:
        errors.extend(_contradictions(tree, settings, lines))
    return SettingsAndErrors(Config(settings, found[0] if found else None, tree), tuple(errors))


def _listeners(tree: Tree) -> Tree:
    """Without HTTP if an address is given, but none for it: then exactly the given addresses are listened on."""
    given = tree.get("listen")
    if not isinstance(given, dict) or not given.keys() - NO_ADDRESSES or "http" in given:
        return {}
    return branch(("listen", "http"), Value((), KeyOrigin("auto", "another address of [listen] is set")))


def _assignment(text_or_assignment: str | Assignment) -> Assignment:
    return read_assignment(text_or_assignment) if isinstance(text_or_assignment, str) else text_or_assignment


def _parts(node: Node, raw: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Splits a document into one document for each key, so that one error does not hide another."""
    for name, inner in raw.items():
        below = node.nodes.get(name) if isinstance(node, Section) else node.item if isinstance(node, Named) else None
        if isinstance(below, Section | Named) and isinstance(inner, Mapping) and inner:
            yield from ({name: part} for part in _parts(below, inner))
        else:
            yield {name: inner}


def _contradictions(tree: Tree, settings: Settings, lines: FileLines) -> Iterator[ConfigError]:
    for one, other, why in contradictions(settings):
        blamed = next((path for path in (one, other) if origin_at(tree, path).source != "default"), None)
        if blamed is None:  # neither key was set: an empty section of the file
            yield ConfigError(lines.origin(one).where(one), why)
        else:
            yield ConfigError(origin_at(tree, blamed).where(blamed), why)
