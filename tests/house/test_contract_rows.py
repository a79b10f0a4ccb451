"""Every priority-1 row of docs/contracts.md is named by a test, or stands in docs/rows_not_built.md with the reason."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^- \*\*([A-Z]+-\d+)\*\* · (\d) · ([A-Z,]+)(?: ·| —)", re.MULTILINE)
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
    """The row ids a test's name carries: `test_gen_2_gen_3_prefill_samples` decides GEN-2 and GEN-3."""
    pattern = rf"(?:^|_)({'|'.join(sorted(prefixes()))})_(\d+)(?=_|$)"
    return {f"{prefix.upper()}-{number}" for prefix, number in re.findall(pattern, name)}


@cache
def ids_named_by_tests() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found |= ids_in(node.name)
    return found


def not_built() -> dict[str, str]:
    text = (ROOT / "docs" / "rows_not_built.md").read_text()
    return dict(re.findall(r"^\| ([A-Z]+-\d+) \| (.+?) \|$", text, re.MULTILINE))


def test_hon_16_every_priority_1_row_has_a_test_or_a_reason() -> None:
    priority_1 = {name for name, priority in rows().items() if priority == 1}
    assert len(priority_1) > 200
    missing = priority_1 - ids_named_by_tests() - not_built().keys()
    assert sorted(missing) == []


def test_hon_16_the_list_of_rows_not_built_only_names_rows_without_a_test() -> None:
    assert sorted(not_built().keys() & ids_named_by_tests()) == []
    assert sorted(not_built().keys() - rows().keys()) == []


def test_hon_16_tests_name_rows_that_exist() -> None:
    assert sorted(ids_named_by_tests() - rows().keys()) == []


def test_hon_16_ids_are_read_from_names() -> None:
    assert ids_in("test_gen_2_gen_3_prefill_samples") == {"GEN-2", "GEN-3"}
    assert ids_in("test_general_12_things") == set()
