"""No skip hides a capability: a list has each reason, and says who runs the tests or why nobody does."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ci.skips import Known, known_skips, skipped_everywhere, verdict
from ci.stages import read_stages

ROOT = Path(__file__).resolve().parents[2]
SKIPS = {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip"}
TESTS = """
import pytest
pytest.importorskip("no_such_module", reason="one is not installed")
"""
CONFTEST = "from support.run.run_record import record_run\ndef pytest_configure(config): record_run(config)\n"
MORE = """
import os
import pytest

def test_a(): pass

@pytest.mark.skipif("STAGE" not in os.environ, reason="a stage runs it")
def test_b(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_c(n): pytest.skip(f"no {n} here")
"""


def text_of(reason: ast.expr | None) -> str:
    """Returns the reason, with … for values known only at run time; empty if there is none."""
    if isinstance(reason, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in reason.values)
    return str(reason.value) if isinstance(reason, ast.Constant) else ""


def reasons_in(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of every call that skips."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SKIPS:
            named = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            is_text = ast.unparse(node.func) == "pytest.skip"
            yield node.lineno, text_of(named[0] if named else node.args[0] if is_text and node.args else None)


@cache
def all_reasons() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(ROOT)}:{line}", reason)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path != Path(__file__) and "skip" in path.read_text()  # parsing takes longer than reading
        for line, reason in reasons_in(path.read_text())
    ]


def test_hon_5_every_skip_gives_a_reason_that_is_on_the_list() -> None:
    known = known_skips(ROOT)
    found = all_reasons()
    assert len(found) > 40
    unknown = [f"{where}: {text!r}" for where, text in found if not any(entry.matches(text) for entry in known)]
    assert unknown == []


def test_hon_5_the_list_has_no_reason_that_no_test_gives() -> None:
    texts = [text for _, text in all_reasons()]
    assert [entry.reason for entry in known_skips(ROOT) if not any(map(entry.matches, texts))] == []


def test_hon_5_every_entry_says_either_who_decides_or_why_nobody_does() -> None:
    known = known_skips(ROOT)
    assert [entry.reason for entry in known if bool(entry.allowed) == bool(entry.decided_by)] == []
    assert len([entry for entry in known if entry.allowed]) <= 14  # a short list: a longer one hides something
    stages = {stage.name for stage in read_stages(ROOT)}
    assert sorted({entry.stage for entry in known if entry.decided_by} - stages) == []


@pytest.mark.parametrize("source", ["pytest.skip(reason)", "pytest.skip()", "pytest.importorskip('a')"])
def test_hon_5_a_skip_without_a_text_is_found(source: str) -> None:
    ((_, text),) = reasons_in(source)
    assert not any(entry.matches(text) for entry in known_skips(ROOT))


@pytest.mark.long
def test_hon_5_what_one_stage_skips_and_another_runs_is_decided(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_two.py").write_text(MORE)
    records = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for record, environment in zip(records, ({}, {"STAGE": "1"}), strict=True):
        command = (sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", ".")
        variables = {**environment, "IMP_RECORD": str(record), "PYTHONPATH": str(ROOT / "tests")}
        ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, check=False)
        assert ran.returncode == 0, ran.stdout
    assert skipped_everywhere(records[:1]) == {
        "test_one.py": ["one is not installed"],
        "test_two.py::test_b": ["a stage runs it"],
        "test_two.py::test_c[1]": ["no 1 here"],
        "test_two.py::test_c[2]": ["no 2 here"],
    }
    left = skipped_everywhere(records)
    assert sorted(left) == ["test_one.py", "test_two.py::test_c[1]", "test_two.py::test_c[2]"]
    known = [Known("one is .*", decided_by="one: with its tool"), Known("no 1 here", allowed="It has no 1.")]
    lines, problems = verdict(left, known, {"one"})
    assert lines == ["   1  no 1 here\n      It has no 1."]
    assert [problem.splitlines()[0] for problem in problems] == ["   1  one is not installed", "   1  no 2 here"]
    assert "left undecided by `one: with its tool`: test_one.py" in problems[0]
    assert "not in tests/house/skips.toml: test_two.py::test_c[2]" in problems[1]
    lines, problems = verdict(left, known, {"two"})
    assert "   1  one is not installed\n      decided by the stage one: with its tool" in lines
    assert len(problems) == 1


@pytest.mark.parametrize("reasons", [["the stage runs it", "no 1 here"], ["no 1 here", "the stage runs it"]])
def test_hon_5_the_stage_that_a_test_is_deferred_to_gives_the_reason(reasons: list[str]) -> None:
    known = [Known("the stage runs it", decided_by="one"), Known("no 1 here", allowed="It has no 1.")]
    assert verdict({"test_one": reasons}, known, {"one"}) == (["   1  no 1 here\n      It has no 1."], [])
    assert verdict({"test_one": reasons}, known[:1], {"one"})[1] == [
        "   1  no 1 here\n      not in tests/house/skips.toml: test_one"
    ]
