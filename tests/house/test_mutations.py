"""The parts of the mutation run: Python accepts each change, and code that cannot matter is not changed."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.mutated_import import MutatedImport
from mutants.mutations import mutations_of

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


@pytest.fixture
def breakable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MutatedImport:
    """The import of a package whose number becomes 0."""
    package = tmp_path / "breakable"
    package.mkdir()
    (package / "__init__.py").write_text("from breakable.part import TWO\n")
    part = package / "part.py"
    part.write_text("TWO = 1 + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [mutation] = [each for each in mutations_of(part) if each.replacement == " - "]
    return MutatedImport(mutation, package)


def test_hon_16_a_mutant_lives_in_the_import_and_the_file_stays_as_it_is(breakable: MutatedImport) -> None:
    finders = list(sys.meta_path)
    try:
        breakable.install()
        assert importlib.import_module("breakable").TWO == 0
    finally:
        sys.meta_path[:] = finders
        for name in ("breakable", "breakable.part"):
            sys.modules.pop(name, None)
    assert importlib.import_module("breakable").TWO == 2


def test_hon_16_a_process_that_a_test_starts_has_the_mutant_too(
    breakable: MutatedImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = [sys.executable, "-c", "import breakable; print(breakable.TWO)"]
    assert subprocess.check_output(show, text=True) == "2\n"
    monkeypatch.setenv("IMP_MUTANT", "")  # puts it back afterwards
    breakable.install_in_children()
    assert subprocess.check_output(show, text=True) == "0\n"


def test_hon_16_lines_that_run_at_import_are_distinguished_from_those_of_functions(source: Path) -> None:
    of_import = {mutation.line for mutation in mutations_of(source) if mutation.at_import}
    assert of_import == {8, 11}  # the constant and the default
