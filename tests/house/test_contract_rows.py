"""Every row of docs/contracts.md and docs/faults.md is named by a test, or listed in docs/rows_not_built.md."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^- \*\*([A-Z]+-\d+)\*\* · (\d) · ([A-Z,]+)(?: ·| —)", re.MULTILINE)
FAULT_ROW = re.compile(r"^\| ([A-Z]\d\d) \|", re.MULTILINE)
# Names of number types in tests; the row F16 looks like one of them.
TYPES = {"F16", "F32"}
# Rows of test honesty bind every lane and name none.
HONESTY_ROW = re.compile(r"^- \*\*(HON-\d+)\*\* · (\d) —", re.MULTILINE)


@cache
def rows() -> dict[str, int]:
    """Id -> priority of every row of the contracts."""
    text = (ROOT / "docs" / "contracts.md").read_text()
    found = {name: int(priority) for name, priority, _ in ROW.findall(text)}
    found |= {name: int(priority) for name, priority in HONESTY_ROW.findall(text)}
    return found


@cache
def prefixes() -> set[str]:
    return {name.split("-")[0].lower() for name in rows()}


def ids_in(name: str) -> set[str]:
    """The row ids in a test's name: `test_gen_2_m03_prefill_samples` decides GEN-2 and M03."""
    pattern = rf"(?:^|_)({'|'.join(sorted(prefixes()))})_(\d+)(?=_|$)"
    contracts = {f"{prefix.upper()}-{number}" for prefix, number in re.findall(pattern, name)}
    return contracts | ({found.upper() for found in re.findall(r"(?:^|_)([a-z]\d\d)(?=_|$)", name)} - TYPES)


@cache
def ids_named_by_tests() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found |= ids_in(node.name)
    return found


@cache
def faults() -> set[str]:
    """The ids of docs/faults.md."""
    return set(FAULT_ROW.findall((ROOT / "docs" / "faults.md").read_text()))


def not_built() -> set[str]:
    """The ids that have a reason in docs/rows_not_built.md."""
    text = (ROOT / "docs" / "rows_not_built.md").read_text()
    entries = re.findall(r"^\| ([A-Z][A-Z0-9, -]*\d) \| (.+?) \|$", text, re.MULTILINE)
    listed = [name for names, _ in entries for name in names.split(", ")]
    assert len(listed) == len(set(listed))
    return set(listed)


def test_hon_16_every_row_has_a_test_or_a_reason() -> None:
    assert len(rows()) > 350 and len(faults()) > 350
    missing = (rows().keys() | faults()) - ids_named_by_tests() - not_built()
    assert sorted(missing) == []


def test_hon_16_the_list_of_rows_not_built_only_names_rows_without_a_test() -> None:
    assert sorted(not_built() & ids_named_by_tests()) == []
    assert sorted(not_built() - rows().keys() - faults()) == []


def test_hon_16_tests_name_rows_that_exist() -> None:
    assert sorted(ids_named_by_tests() - rows().keys() - faults()) == []


def test_hon_16_ids_are_read_from_names() -> None:
    assert ids_in("test_gen_2_gen_3_prefill_samples") == {"GEN-2", "GEN-3"}
    assert ids_in("test_m03_t12_things") == {"M03", "T12"}
    assert ids_in("test_general_12_things") == set()
