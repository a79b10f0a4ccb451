"""The parts of the mutation run: Python accepts each change, and code that cannot matter is not changed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

import pytest

from mutants import lines_of_children
from mutants.lines_of_children import FOLDER, PREFIX, RECORDER, TEST
from mutants.mutations import mutations_of
from mutants.package_copy import PackageCopy

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


@lru_cache(maxsize=5)
def g(kept: Any) -> bool:
    for _ in zip(kept, kept, strict=True):
        return lru_cache(maxsize=6)(kept)
    return False
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
    "return True",
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
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "installed" / "breakable"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from breakable.part import two\n")
    (folder / "part.py").write_text("def two():\n    return 1 + 1\n")
    return folder


@pytest.fixture
def copy(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageCopy:
    """A copy that the processes of a test import."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    made = PackageCopy(package, tmp_path / "copy")
    made.import_first()
    return made


def two_in_a_child() -> str:
    show = [sys.executable, "-c", "import breakable; print(breakable.two())"]
    return subprocess.check_output(show, text=True)


def test_hon_16_a_mutant_lives_in_a_copy_that_processes_import_and_the_file_stays_as_it_is(
    package: Path, copy: PackageCopy
) -> None:
    part = package / "part.py"
    before = part.read_bytes()
    [mutation] = [each for each in mutations_of(part) if each.replacement == " - "]
    assert two_in_a_child() == "2\n"
    with copy.changed(part, mutation.mutant):
        assert two_in_a_child() == "0\n"  # of the same size: no cache file is taken for it
        assert part.read_bytes() == before
    assert two_in_a_child() == "2\n"


def test_hon_16_the_lines_of_a_process_that_is_killed_are_recorded(
    package: Path, copy: PackageCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, recorder = package / "__init__.py", package / "recorder.py"
    hook = b"from breakable import recorder\nrecorder.record()\n"
    monkeypatch.setenv(RECORDER, str(os.getpid()))
    monkeypatch.setenv(TEST, "test_x.py::test_it")
    folder = copy.package / FOLDER
    code = "import breakable; breakable.two(); print('ran', flush=True); input()"
    with (
        copy.changed(start, start.read_bytes() + hook),
        copy.changed(recorder, Path(lines_of_children.__file__).read_bytes()),
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert cast(IO[bytes], process.stdout).readline() == b"ran\n"
        process.kill()
        found = [path.read_text() for path in folder.glob(f"{PREFIX}*")]
    assert found == ["test_x.py::test_it\npart.py:2\n"]


def test_hon_16_lines_that_run_at_import_are_distinguished_from_those_of_functions(source: Path) -> None:
    of_import = {mutation.line for mutation in mutations_of(source) if mutation.at_import}
    assert of_import == {8, 11}  # the constant and the default
