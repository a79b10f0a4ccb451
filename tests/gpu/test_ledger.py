"""The ledger and the kernel list agree: the current code of validated kernels has run on hardware."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_check import ledger, sources
from gpu_check.ledger import CLEAN, EMULATED, NOT_RUN, Entry, Speed, proof, standings
from gpu_check.op_cases import OPS
from imp_service import _core

ROWS = _core.kernels("cuda_emulated")
PROVEN = Entry(
    "now", "13.0.88", "H200", "9.0", "580", "2026-11-22", {"decode": 0.1}, {"8b m=1": Speed(3000.0, "GB/s", 0.7)}, CLEAN
)


def now(kernel: str, nvcc: str) -> str:
    return "now"


def test_gemm_16_what_is_called_validated_is_in_the_ledger() -> None:
    found = standings(ROWS, sources.ops(), ledger.read(), sources.hash_of)
    print("These wait for hardware:")
    print("\n".join(f"  {row.kernel}: {row.word}" for row in found if not row.validated))
    print("Beside the list:")
    print("\n".join(f"  {name}: {proof(name, ledger.read(), sources.hash_of)[1]}" for name in sources.ops()))
    assert [row for row in found if row.claims_too_much] == []


def test_gemm_16_the_ledger_is_of_hardware_and_of_kernels_that_there_are() -> None:
    held = ledger.read()
    assert [name for name, entry in held.items() if not entry.is_of_hardware] == []
    assert sorted(held.keys() - {row["name"] for row in ROWS} - sources.ops().keys()) == []


def test_every_kernel_has_its_sources() -> None:
    """Sources of kernels outside the list have their own cases."""
    names = [row["name"] for row in ROWS]
    assert OPS.keys() == sources.ops().keys()
    assert OPS.keys().isdisjoint(names)
    assert {len(sources.hash_of(name, "13.0.88")) for name in [*names, *OPS]} == {64}
    tests = {name for op in OPS.values() for name in op.tests}
    assert [name for name in tests if not (sources.ROOT / "tests" / name).exists()] == []


def test_what_prepares_activations_belongs_to_the_kernels_that_read_them() -> None:
    assert {row["name"] for row in ROWS if row["layout"] == "file"} == set(sources.READS_FLOATS)
    for row in ROWS:
        names = {path.name for path in sources.sources_of(sources.CSRC, row["name"])}
        assert ("activation_rows.cu" in names) == (row["name"] not in sources.READS_FLOATS)


def test_host_sides_are_files_that_there_are() -> None:
    room = sources.CSRC / sources.ROOM
    named = [*sources.HOST_SIDES, *(host for hosts in sources.HOST_SIDES.values() for host in hosts)]
    assert [name for name in named if not (room / name).is_file()] == []


def rows_of(validated: bool) -> list[dict[str, object]]:
    return [{"name": "a", "validated": validated}]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (None, "has not run on hardware"),
        ({"hash": "then"}, "has changed since 2026-11-22"),
        ({"sanitizer": "1 race"}, "the sanitizer found: 1 race"),
        ({"sanitizer": NOT_RUN}, "right on H200, 2026-11-22, and no sanitizer has looked at it"),
        ({"device": EMULATED}, "has not run on hardware: its entry is of emulated GPU, nvcc 13.0.88"),
        ({"nvcc": "none"}, "has not run on hardware: its entry is of H200, nvcc none"),
        ({"compute_capability": "unknown"}, "has not run on hardware: its entry is of H200, nvcc 13.0.88"),
    ],
)
def test_gemm_16_a_claim_without_proof_is_found(changes: dict[str, str] | None, word: str) -> None:
    entries = {} if changes is None else {"a": replace(PROVEN, **changes)}
    (found,) = standings(rows_of(validated=True), [], entries, now)
    assert found.claims_too_much
    assert found.word == word
    (waiting,) = standings(rows_of(validated=False), [], entries, now)
    assert not waiting.claims_too_much
    assert not waiting.may_be_promoted


def test_what_was_right_may_be_promoted() -> None:
    (found,) = standings(rows_of(validated=False), [], {"a": PROVEN}, now)
    assert found.may_be_promoted
    assert not standings(rows_of(validated=True), [], {"a": PROVEN}, now)[0].claims_too_much


def test_gemm_16_no_row_is_proven_before_what_every_model_needs_beside_it() -> None:
    entries = {"a": PROVEN, "norm": PROVEN, "rope": replace(PROVEN, sanitizer=NOT_RUN)}
    (found,) = standings(rows_of(validated=True), ["norm", "rope", "experts"], entries, now)
    assert found.claims_too_much
    assert found.word == "right on H200, 2026-11-22, but these are not: rope, experts"
    (found,) = standings(rows_of(validated=False), ["norm"], entries, now)
    assert found.may_be_promoted


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    ledger.write({"a": PROVEN}, tmp_path / "ledger.json")
    assert ledger.read(tmp_path / "ledger.json") == {"a": PROVEN}
    (tmp_path / "ledger.json").write_text('{"format": 1, "kernels": {}}')
    with pytest.raises(ValueError, match="format 1, expected 2"):
        ledger.read(tmp_path / "ledger.json")


# The hash.


def test_code_has_neither_comments_nor_white_space() -> None:
    text = 'int x  = 1; // one\n/* two\n lines */ const char* s = "/* kept */ // too";\nchar c = \'"\';'
    assert sources.code_of(text) == 'int x = 1 ; const char * s = "/* kept */ // too" ; char c = \'"\' ;'
    assert sources.code_of("int /* a */ x=1;") == sources.code_of("int x = 1;\n")
    assert sources.code_of("int x;") != sources.code_of("intx;")


@pytest.fixture
def csrc(tmp_path: Path) -> Path:
    """Sources in which two matrix kernels share shared.h, and the first includes deep.h through its own header."""
    files = {
        "backend/cuda/gemm/dp4a.cu": '#include "backend/cuda/gemm/dp4a.cuh"\nvoid launch_a() {}\n',
        "backend/cuda/gemm/dp4a.cuh": '#include "backend/deep.h"\n#include "backend/shared.h"\n#include <vector>\n',
        "backend/cuda/gemm/imma.cu": '#include "backend/shared.h"\nvoid launch_b() {}\n',
        "backend/deep.h": "constexpr int kDeep = 1;\n",
        "backend/cuda/gemm/activation_rows.cu": "void prepare() { launch(stream, rows_kernel); }\n",
        "backend/cuda/deep/norm.cu": '#include "backend/shared.h"\nvoid norm() { launch(stream, norm_kernel); }\n',
        "backend/shared.h": "constexpr int kShared = 1;  // as it is\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def prints(csrc: Path, nvcc: str = "13.0.88", flags: tuple[str, ...] = ("-O3",)) -> list[str]:
    return [
        sources.fingerprint(csrc, sources.sources_of(csrc, name), nvcc, flags)
        for name in ("q8_0_dp4a", "q8_0_imma", "norm")
    ]


def test_a_changed_comment_changes_nothing(csrc: Path) -> None:
    before = prints(csrc)
    (csrc / "backend/shared.h").write_text("// Otherwise said.\nconstexpr  int kShared =1;\n")
    assert prints(csrc) == before


@pytest.mark.parametrize(
    ("header", "changed"),
    [
        ("backend/shared.h", {0, 1, 2}),
        ("backend/deep.h", {0}),
        ("backend/cuda/gemm/activation_rows.cu", {0, 1}),
        ("backend/cuda/deep/norm.cu", {2}),
    ],
)
def test_a_changed_header_changes_all_that_reach_it(csrc: Path, header: str, changed: set[int]) -> None:
    before = prints(csrc)
    (csrc / header).write_text((csrc / header).read_text() + "constexpr int kOther = 2;\n")
    after = prints(csrc)
    assert {i for i in range(3) if after[i] != before[i]} == changed


def test_the_compiler_and_its_flags_count(csrc: Path) -> None:
    assert len({*prints(csrc), *prints(csrc, nvcc="13.1.0"), *prints(csrc, flags=("-O2",))}) == 9


def test_kernels_beside_the_list_are_found_in_any_folder(csrc: Path) -> None:
    assert {name: path.as_posix() for name, path in sources.ops(csrc).items()} == {
        "activation_rows": "backend/cuda/gemm/activation_rows.cu", "norm": "backend/cuda/deep/norm.cu"
    }  # fmt: skip


def test_a_kernel_without_a_source_is_an_error(csrc: Path) -> None:
    with pytest.raises(LookupError, match="q8_0_other has no source: its last word"):
        sources.file_of(csrc, "q8_0_other")
    with pytest.raises(LookupError, match=r"q8_0_wgmma has no source: gemm/wgmma\.cu"):
        sources.file_of(csrc, "q8_0_wgmma")
