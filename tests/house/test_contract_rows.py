"""Every row of docs/contracts.md and docs/faults.md is named by a test, or listed in docs/rows_without_a_test.md."""

import re
from functools import cache
from pathlib import Path

import pytest

from support.run.defined_tests import definitions

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROW = re.compile(r"^- \*\*([A-Z]+-\d+)\*\* · (\d) · ([A-Z,]+)(?: ·| —)", re.MULTILINE)
FAULT_ROW = re.compile(r"^\| ([A-Z]\d\d) \|", re.MULTILINE)
# Names of number types in tests; the row F16 looks like one of them.
TYPES = {"F16", "F32"}
# Reports that a tool writes where its user chooses.
WRITTEN_BY_TOOLS = {"report.md"}
# The rows of test honesty apply to every area and name none.
HONESTY_ROW = re.compile(r"^- \*\*(HON-\d+)\*\* · (\d) —", re.MULTILINE)


def contracts_of(page: Path) -> list[str]:
    text = page.read_text()
    return [name for name, _, _ in ROW.findall(text)] + [name for name, _ in HONESTY_ROW.findall(text)]


@cache
def rows() -> set[str]:
    """Returns the ids of docs/contracts.md."""
    return set(contracts_of(DOCS / "contracts.md"))


@cache
def planned() -> list[str]:
    """Returns the ids on the pages about planned features."""
    pages = sorted((DOCS / "planned").glob("*.md"))
    return [name for page in pages for name in contracts_of(page) + FAULT_ROW.findall(page.read_text())]


@cache
def prefixes() -> set[str]:
    return {name.split("-")[0].lower() for name in [*rows(), *planned()] if "-" in name}


def ids_in(name: str) -> set[str]:
    """Returns the row ids in a test's name: `test_gen_2_m03_prefill_samples` covers GEN-2 and M03."""
    pattern = rf"(?:^|_)({'|'.join(sorted(prefixes()))})_(\d+)(?=_|$)"
    contracts = {f"{prefix.upper()}-{number}" for prefix, number in re.findall(pattern, name)}
    return contracts | ({found.upper() for found in re.findall(r"(?:^|_)([a-z]\d\d)(?=_|$)", name)} - TYPES)


@cache
def ids_named_by_tests() -> set[str]:
    return set[str]().union(*(ids_in(test.name) for test in definitions()))


@cache
def faults() -> set[str]:
    """Returns the ids of docs/faults.md."""
    return set(FAULT_ROW.findall((DOCS / "faults.md").read_text()))


def without_a_test() -> set[str]:
    """Returns the ids that have a reason in docs/rows_without_a_test.md."""
    text = (DOCS / "rows_without_a_test.md").read_text()
    entries = re.findall(r"^\| ([A-Z][A-Z0-9, -]*\d) \| (.+?) \|$", text, re.MULTILINE)
    listed = [name for names, _ in entries for name in names.split(", ")]
    assert len(listed) == len(set(listed))
    return set(listed)


def test_hon_16_every_row_has_a_test_or_a_reason() -> None:
    assert len(rows()) > 320 and len(faults()) > 350
    missing = (rows() | faults()) - ids_named_by_tests() - without_a_test()
    assert sorted(missing) == []


def test_hon_16_the_list_only_names_rows_without_a_test() -> None:
    assert sorted(without_a_test() & ids_named_by_tests()) == []
    assert sorted(without_a_test() - rows() - faults()) == []


def test_hon_16_a_row_is_planned_or_built() -> None:
    assert len(planned()) > 5
    assert len(planned()) == len(set(planned()))
    assert sorted(set(planned()) & (rows() | faults())) == []


def test_hon_16_pages_only_name_pages_that_exist() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", *(ROOT / "proto").glob("*.md"), *(ROOT / "examples").glob("*.md")]
    missing = [
        f"{page.relative_to(ROOT)} names {name}"
        for page in pages
        for name in re.findall(r"[\w./-]+\.md\b", page.read_text())
        if name not in WRITTEN_BY_TOOLS and not any((place / name).is_file() for place in (page.parent, ROOT, DOCS))
    ]
    assert missing == []


def test_hon_16_tests_name_rows_that_exist() -> None:
    assert sorted(ids_named_by_tests() - rows() - faults()) == []


def test_hon_16_ids_are_read_from_names() -> None:
    assert ids_in("test_gen_2_gen_3_prefill_samples") == {"GEN-2", "GEN-3"}
    assert ids_in("test_m03_t12_things") == {"M03", "T12"}
    assert ids_in("test_general_12_things") == set()


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples/README.md"]
SOURCES = ("csrc", "service", "proto", "conf", "examples", "tests", "tools", "docs", ".ci", ".github")
_NAMED = re.compile(rf"(?<![\w./-])((?:{'|'.join(map(re.escape, SOURCES))})/[\w./-]*\w)(?![\w*{{<-])")


def missing(text: str) -> set[str]:
    named = {path for span in re.findall(r"`([^`\n]+)`", text) for path in _NAMED.findall(span)}
    return {path for path in named if not (ROOT / path).exists()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_named_file_exists(page):
    assert missing(page.read_text()) == set()


def test_a_name_of_nothing_is_found():
    assert missing("edit `csrc/backend/no_such_file.h`, `docs/serving.md`") == {"csrc/backend/no_such_file.h"}
