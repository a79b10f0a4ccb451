"""The ledger and the kernel list agree: what is called validated has run on hardware as it is today."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_check import ledger, sources
from gpu_check.ledger import Entry, Speed, standings
from imp_service import _core

ROWS = _core.kernels("cuda_emulated")
PROVEN = Entry("now", "13.0.88", "H200", "580", "2026-11-22", {"decode": 0.1}, {"8b m=1": Speed(3000.0, "GB/s", 0.7)})


def test_gemm_16_what_is_called_validated_is_in_the_ledger() -> None:
    found = standings(ROWS, ledger.read(), sources.hash_of)
    print("These wait for hardware:")
    print("\n".join(f"  {row.kernel}: {row.word}" for row in found if not row.validated))
    assert [row for row in found if row.claims_too_much] == []


def test_the_ledger_names_kernels_of_the_list_alone() -> None:
    assert sorted(ledger.read().keys() - {row["name"] for row in ROWS}) == []


def test_every_kernel_has_its_sources() -> None:
    hashes = {row["name"]: sources.hash_of(row["name"], "13.0.88") for row in ROWS}
    assert {len(value) for value in hashes.values()} <= {64}


def rows_of(validated: bool) -> list[dict[str, object]]:
    return [{"name": "a", "validated": validated}]


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ({}, "has not run on hardware"),
        ({"a": Entry("then", "13.0.88", "H200", "580", "2026-11-22", {})}, "has changed since 2026-11-22"),
        (
            {"a": Entry("now", "13.0.88", "H200", "580", "2026-11-22", {}, sanitizer="1 race")},
            "the sanitizer found: 1 race",
        ),
    ],
)
def test_gemm_16_a_claim_without_proof_is_found(entries: ledger.Ledger, word: str) -> None:
    (found,) = standings(rows_of(validated=True), entries, lambda kernel, nvcc: "now")
    assert found.claims_too_much
    assert found.word == word
    (waiting,) = standings(rows_of(validated=False), entries, lambda kernel, nvcc: "now")
    assert not waiting.claims_too_much
    assert not waiting.may_be_promoted


def test_what_was_right_may_be_promoted() -> None:
    (found,) = standings(rows_of(validated=False), {"a": PROVEN}, lambda kernel, nvcc: "now")
    assert found.may_be_promoted
    assert not standings(rows_of(validated=True), {"a": PROVEN}, lambda kernel, nvcc: "now")[0].claims_too_much


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    ledger.write({"a": PROVEN}, tmp_path / "ledger.json")
    assert ledger.read(tmp_path / "ledger.json") == {"a": PROVEN}
    (tmp_path / "ledger.json").write_text('{"format": 2, "kernels": {}}')
    with pytest.raises(ValueError, match="format 2, expected 1"):
        ledger.read(tmp_path / "ledger.json")


# The hash.


def test_code_has_neither_comments_nor_white_space() -> None:
    text = 'int x  = 1; // one\n/* two\n lines */ const char* s = "/* kept */ // too";\nchar c = \'"\';'
    assert sources.code_of(text) == 'int x = 1 ; const char * s = "/* kept */ // too" ; char c = \'"\' ;'
    assert sources.code_of("int /* a */ x=1;") == sources.code_of("int x = 1;\n")
    assert sources.code_of("int x;") != sources.code_of("intx;")


@pytest.fixture
def csrc(tmp_path: Path) -> Path:
    """a.cu and b.cu share shared.h; a.cu reaches deep.h through its own pair."""
    files = {
        "backend/cuda/gemm/a.cu": '#include "backend/cuda/gemm/a.cuh"\nvoid launch_a(const GemmLaunch& launch) {}\n',
        "backend/cuda/gemm/a.cuh": '#include "backend/deep.h"\n#include "backend/shared.h"\n#include <vector>\n',
        "backend/cuda/gemm/b.cu": '#include "backend/shared.h"\nvoid launch_b(const GemmLaunch&) { launch_a(x); }\n',
        "backend/deep.h": '#include "backend/cuda/emu/emu.h"\nconstexpr int kDeep = 1;\n',
        "backend/cuda/emu/emu.h": "constexpr int kEmulated = 1;\n",
        "backend/shared.h": "constexpr int kShared = 1;  // as it is\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def prints(csrc: Path, nvcc: str = "13.0.88", flags: tuple[str, ...] = ("-O3",)) -> list[str]:
    return [sources.fingerprint(csrc, [sources.file_of(csrc, name)], nvcc, flags) for name in ("a", "b")]


def test_a_changed_comment_changes_nothing(csrc: Path) -> None:
    before = prints(csrc)
    (csrc / "backend/shared.h").write_text("// Otherwise said.\nconstexpr  int kShared =1;\n")
    assert prints(csrc) == before


@pytest.mark.parametrize(
    ("header", "changed"), [("backend/shared.h", {0, 1}), ("backend/deep.h", {0}), ("backend/cuda/emu/emu.h", set())]
)
def test_a_changed_header_changes_all_that_reach_it(csrc: Path, header: str, changed: set[int]) -> None:
    before = prints(csrc)
    (csrc / header).write_text("constexpr int kOther = 2;\n")
    after = prints(csrc)
    assert {i for i in (0, 1) if after[i] != before[i]} == changed


def test_the_compiler_and_its_flags_count(csrc: Path) -> None:
    assert len({*prints(csrc), *prints(csrc, nvcc="13.1.0"), *prints(csrc, flags=("-O2",))}) == 6


def test_a_kernel_without_a_source_is_an_error(csrc: Path) -> None:
    with pytest.raises(LookupError, match="launch_c is defined in 0 files"):
        sources.file_of(csrc, "c")
