"""Reads every source of settings in its order of precedence: the result is whole, checked and frozen, or an error."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from imp_service.config.build import build, contradictions
from imp_service.config.check import check_assignment, check_document
from imp_service.config.config import Config
from imp_service.config.environment import read_environment
from imp_service.config.errors import ConfigError
from imp_service.config.files import candidates, read_first
from imp_service.config.parse import parse
from imp_service.config.settings import TABLE
from imp_service.config.sources import FileLines, read_assignments
from imp_service.config.tree import Tree, merged, origin_at


def load(
    option: str | None = None,
    assignments: Iterable[str] = (),
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Config:
    """The settings of `--config`, of the texts of `--set`, of the environment and of the file; raises ConfigError.

    `variables` stand in for the process's own, `root` for the root of the file system.
    """
    environment = read_environment(variables)
    found = read_first(candidates(option, environment, root))
    tree: Tree = {}
    lines = FileLines("", {})
    if found is not None:
        file, text = found
        document, lines = parse(TABLE, text, str(file))
        tree = check_document(TABLE, document, lines.origin)
    for assignment in (*environment.assignments, *read_assignments(assignments)):
        tree = merged(tree, check_assignment(TABLE, assignment))
    settings = build(tree)
    for one, other, why in contradictions(settings):
        blamed = next((path for path in (one, other) if origin_at(tree, path).source != "default"), None)
        if blamed is None:  # an empty section of the file: what is missing in it has no place of its own
            raise ConfigError(lines.origin(one).where(one), why)
        raise ConfigError(origin_at(tree, blamed).where(blamed), why)
    return Config(settings, found[0] if found else None, tree)
