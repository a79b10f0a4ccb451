"""The mutation run's own parts: each change is one that Python accepts, and nothing that cannot matter is changed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutants.mutations import mutations_of
from mutants.tests_of_lines import failed_tests

SOURCE = '''"""A docstring of 1."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import enum

LIMIT: int = 3


def f(a: int, b: bool = True) -> int | None:
    """Another."""
    assert a != 7
    log(a, kind="x")
    if a < LIMIT and b:
        return a + 1
    return None
'''
CHANGES = {
    "LIMIT: int = 4",
    "b: bool = False",
    "log(a)",
    "pass",
    "if (not (a < LIMIT and b)):",
    "if a <= LIMIT and b:",
    "if a < LIMIT or b:",
    "return a - 1",
    "return a + 2",
    "return None",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return path


def test_hon_16_every_mutation_is_python_and_differs(source: Path) -> None:
    before = ast.dump(ast.parse(SOURCE))
    for mutation in mutations_of(source):
        after = mutation.apply(SOURCE.encode()).decode()
        assert ast.dump(ast.parse(after)) != before, mutation


def test_hon_16_what_may_matter_is_changed_and_nothing_else(source: Path) -> None:
    lines = SOURCE.splitlines()
    changed = {
        each.strip()
        for mutation in mutations_of(source)
        for each in mutation.apply(SOURCE.encode()).decode().splitlines()
        if each not in lines
    }
    assert {change for change in changed if "def f" not in change} == CHANGES - {"b: bool = False"}
    assert {change for change in changed if "def f" in change} == {"def f(a: int, b: bool = False) -> int | None:"}


def test_hon_16_failed_tests_are_read_from_a_summary() -> None:
    summary = "FAILED tests/a/test_b.py::test_c[x - y] - AssertionError: no\nERROR tests/d.py::test_e\n1 failed"
    assert failed_tests(summary) == ["tests/a/test_b.py::test_c[x - y]", "tests/d.py::test_e"]
