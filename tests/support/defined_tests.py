"""The test functions of this project, read from their sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]


class Definition(NamedTuple):
    path: Path
    name: str
    decorators: tuple[str, ...]


@cache
def files_of_tests() -> tuple[Path, ...]:
    return tuple(sorted(TESTS.rglob("test_*.py")))


@cache
def definitions() -> tuple[Definition, ...]:
    """Returns each test function once. Parsing all files takes seconds, so the house tests of a process share this."""
    return tuple(
        Definition(path, node.name, tuple(map(ast.unparse, node.decorator_list)))
        for path in files_of_tests()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )
