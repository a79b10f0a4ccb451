"""The test functions of this project, read from their sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Definition(NamedTuple):
    path: Path
    name: str
    decorators: tuple[str, ...]
    arguments: tuple[str, ...]
    packages: frozenset[str]  # without which the test is skipped


@cache
def files_of_tests() -> tuple[Path, ...]:
    return tuple(sorted(TESTS.rglob("test_*.py")))


@cache
def definitions() -> tuple[Definition, ...]:
    """Returns each test function once. Parsing all files takes seconds, so the house tests of a process share this."""
    found = []
    for path in files_of_tests():
        tree = ast.parse(path.read_text())
        of_file = frozenset[str]().union(*(packages_of(each) for each in tree.body if not isinstance(each, FUNCTIONS)))
        found += [
            Definition(
                path,
                node.name,
                tuple(map(ast.unparse, node.decorator_list)),
                tuple(argument.arg for argument in node.args.args),
                of_file | packages_of(node),
            )
            for node in ast.walk(tree)
            if isinstance(node, FUNCTIONS) and node.name.startswith("test_")
        ]
    return tuple(found)


def packages_of(tree: ast.AST) -> frozenset[str]:
    """Returns the packages that `pytest.importorskip` asks for here."""
    return frozenset(
        node.args[0].value.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "pytest.importorskip"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )
