"""A plain `pytest` covers every row: `--all` only adds more cases of the same rows."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from house.test_contract_rows import ids_in
from support.run.defined_tests import Definition, definitions, files_of_tests
from support.run.quick_run import cover, spread

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SAMPLED = TESTS / "house" / "sampled_rows.toml"
MARKS = LONG, TIMING, SWEEP, FEW = tuple(f"pytest.mark.{name}" for name in ("long", "timing", "sweep", "few"))
# Packages that only the tests of the full tier have.
ORACLES = {"torch", "transformers", "llama_cpp"}
# A file with sweeps over two parameters and over one of two.
SWEPT = TESTS / "backend" / "test_gemm_kernels.py"
# A file with two tests, of which one draws fewer examples in a quick run.
DRAWN = TESTS / "service" / "generation" / "test_session_text.py"
REPEATS_LESS = "test_ses_30_a_sessions_text_is_that_of_its_tokens_fed_anew"


def rows_of_tests() -> tuple[set[str], set[str]]:
    """Returns the rows that tests cover, and those that some test covers in a quick run without the oracles."""
    every, quick = set[str](), set[str]()
    for test in definitions():
        every |= ids_in(test.name)
        if not {LONG, TIMING} & set(test.decorators) and not test.packages & ORACLES:
            quick |= ids_in(test.name)
    return every, quick


@functools.cache
def collected(*words: str) -> dict[str, set[str]]:
    """Returns a map from each collected test to its cases."""
    options = ["-q", "-n0", "-p", "no:cacheprovider", "--assert=plain", "--collect-only"]
    command = [sys.executable, "-m", "pytest", *options, *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = defaultdict(set)
    for name, case in re.findall(r"^\S+::(\w+)(?:\[(.+)\])?$", ran.stdout, re.MULTILINE):
        found[name].add(case)
    return found


def test_hon_16_every_row_with_a_test_has_one_in_a_quick_run() -> None:
    every, quick = rows_of_tests()
    assert sorted(every - quick) == []


def is_sampled(test: Definition) -> bool:
    """Returns whether a quick run leaves out a part of this test, or all of it."""
    is_marked = any(each.startswith((*MARKS, "given(")) for each in test.decorators)
    return is_marked or "repeats" in test.arguments or bool(test.packages & ORACLES)


def test_hon_16_a_row_that_a_quick_run_only_samples_is_listed() -> None:
    """Another test of the row runs in full, or the list says why the sample is enough for a change."""
    in_full = set[str]().union(*(ids_in(test.name) for test in definitions() if not is_sampled(test)))
    listed = [row for entry in tomllib.loads(SAMPLED.read_text())["sampled"] for row in entry["rows"] if entry["why"]]
    assert sorted(listed) == sorted(rows_of_tests()[0] - in_full)


def test_hon_16_a_test_has_one_mark_at_most() -> None:
    """A second mark would be ignored."""
    marks = {
        f"{test.path.name}::{test.name}": [each for each in test.decorators if each.startswith(MARKS)]
        for test in definitions()
    }
    assert {name: found for name, found in marks.items() if len(found) > 1} == {}


@pytest.mark.parametrize("mark", [LONG, TIMING])
def test_hon_16_only_a_whole_test_is_left_out(mark: str) -> None:
    """A long parameter, class or module could silently leave out rows; a sweep keeps each value."""
    decorated = Counter(test.path for test in definitions() if mark in test.decorators)
    named = {path: len(re.findall(rf'(?<!"){re.escape(mark)}\b', path.read_text())) for path in files_of_tests()}
    assert {path: n for path, n in named.items() if n} == decorated


def test_hon_16_the_oracles_of_a_test_are_known() -> None:
    needed = {test.name: test.packages & ORACLES for test in definitions()}
    assert needed["test_gen_22_yarn_as_transformers_computes_it"] == {"torch", "transformers"}
    assert needed["test_txt_16_the_vectors_are_what_llama_cpp_says_today"] == {"llama_cpp"}
    assert needed["test_mod_30_the_table_has_every_family"] == set()


@pytest.mark.long
def test_hon_4_a_quick_run_has_some_cases_of_every_test_and_each_value_of_a_sweep() -> None:
    quick, every = collected(str(SWEPT)), collected("--all", str(SWEPT))
    long = {test.name for test in definitions() if test.path == SWEPT and LONG in test.decorators}
    assert quick.keys() == every.keys() - long
    assert all(quick[name] <= every[name] for name in every)
    name = "test_gemm_9_gemm_10_equals_float64_and_writes_nothing_else"
    assert len(quick[name]) < len(every[name]) / 4
    for parts in (slice(-1, None), slice(0, -1)):  # the number of rows; the kernel and its type
        assert {tuple(case.split("-")[parts]) for case in quick[name]} == {
            tuple(case.split("-")[parts]) for case in every[name]
        }


@pytest.mark.long
def test_hon_4_the_rest_and_a_quick_run_are_all_cases() -> None:
    files = [str(SWEPT), str(DRAWN)]
    quick, rest, every = collected(*files), collected("--rest", *files), collected("--all", *files)
    assert {name: quick[name] | rest[name] for name in every} == every
    assert {name for name in every if quick[name] & rest[name]} == {REPEATS_LESS}


@pytest.mark.long
def test_hon_4_a_case_that_is_named_is_run() -> None:
    name = "test_gemm_9_gemm_10_equals_float64_and_writes_nothing_else"
    left_out = (collected("--all", str(SWEPT))[name] - collected(str(SWEPT))[name]).pop()
    assert collected(f"{SWEPT}::{name}[{left_out}]")[name] == {left_out}
    assert left_out not in collected(f"--deselect={SWEPT}::nothing", str(SWEPT))[name]


def test_a_cover_is_small_and_has_every_value() -> None:
    grid = [{("a", a), ("b", b), ("c", c)} for a in range(4) for b in range(3) for c in range(2)]
    chosen = cover(grid)
    assert len(chosen) == 4
    assert set().union(*(grid[place] for place in chosen)) == set().union(*grid)
    assert cover([set(), set()]) == [0]


def test_few_cases_are_spread_evenly() -> None:
    assert spread(5, 3) == [0, 2, 4]
    assert spread(100, 2) == [0, 99]
    assert spread(9, 1) == [0]
    assert spread(2, 3) == [0, 1]
    assert all(len(spread(n, few)) == min(n, few) for n in range(1, 40) for few in range(1, 20))
