"""kArithmeticRevision: the bits of logits and draws change with the number, and the number with the bits."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from imp_service.tables import ARITHMETIC_REVISION
from support.kernels.devices import ISAS
from support.models.arithmetic_cases import (
    DRAWS,
    Result,
    Results,
    Stored,
    WrongRevision,
    cases,
    changed,
    read,
    renewed,
    results,
    tower_cases,
)

STORED = read()


# That of every x86 processor, and the best; each has kernels of its own. Portable kernels take ten times as long.
PORTABLE, FAST = "generic", [isa for isa in ISAS if isa != "generic"]


@pytest.mark.parametrize("isa", [*FAST[:1], "auto"])
def test_rsm_5_the_stored_bits_are_those_of_this_revision_on_every_instruction_set(isa: str) -> None:
    assert renewed(results(isa), STORED, ARITHMETIC_REVISION) == STORED, "run tools/write_arithmetic.py"


def test_rsm_5_portable_kernels_have_these_bits() -> None:
    names = [*[name for name in cases() if not name.startswith("wide")][::9], *tower_cases()]
    for name, result in results(PORTABLE, names).items():
        assert result == STORED.results[name], name


def test_rsm_5_a_stored_revision_changed_bits_of_the_one_before() -> None:
    assert STORED.revision == 1 or changed(STORED.results, STORED.before)


def test_rsm_5_another_order_of_sums_is_found(tmp_path: Path) -> None:
    name = "llama q8_0"
    other = cases()[name].result(tmp_path, "auto", gemm=[("q8_0", "reference")])
    found = {**STORED.results, name: other}
    with pytest.raises(WrongRevision, match=f"raise kArithmeticRevision .*: other bits in {name}$"):
        renewed(found, STORED, STORED.revision)


def with_other_bits(results: Results, name: str) -> Results:
    return {**results, name: dataclasses.replace(results[name], bits="0" * 16)}


def test_rsm_5_a_raised_number_needs_other_bits() -> None:
    same, raised = STORED.results, STORED.revision + 1
    with pytest.raises(WrongRevision, match="no bit differs"):
        renewed(same, STORED, raised)
    other = with_other_bits(same, DRAWS)
    assert renewed(other, STORED, raised) == Stored(raised, other, same)


def test_rsm_5_a_case_that_reads_something_else_is_no_change_of_arithmetic() -> None:
    other = {**STORED.results, "llama f32": Result("f" * 16, "0" * 16)}
    assert changed(other, STORED.results) == []
    assert renewed(other, STORED, STORED.revision) != STORED
