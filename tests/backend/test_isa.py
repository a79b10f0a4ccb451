"""Instruction sets: words, refusals, and that no code for one leaks into the others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from imp_service import _core
from imp_service import _testing as core

ROOT = Path(__file__).parents[2]
ISAS = ["generic", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "neondot"]


# Of CPUs that have one and nothing beyond: AVX-VNNI and AVX-512 come without each other, and no CPU is of two families.
HAS = {isa: [other for other in ISAS[: i + 1] if other != "avx2vnni" or i <= 2] for i, isa in enumerate(ISAS)}
HAS["neondot"] = ["generic", "neondot"]


def test_gemm_14_words_and_what_each_cpu_has() -> None:
    assert core.known_isas() == ISAS
    for best, had in HAS.items():
        assert core.resolve_isa("auto", best) == best
        for isa in ISAS:
            if isa in had:
                assert core.resolve_isa(isa, best) == isa
            else:
                with pytest.raises(_core.DeviceError, match=f"lacks {isa}; it has: {', '.join(had)}$"):
                    core.resolve_isa(isa, best)


def test_gemm_14_one_that_the_cpu_lacks_fails_with_the_list() -> None:
    with pytest.raises(_core.DeviceError) as caught:
        core.resolve_isa("avx512vnni", "avx2")
    assert caught.value.reason == "DEVICE_MISSING"
    assert caught.value.message == "isa: this CPU lacks avx512vnni; it has: generic, avx2"
    with pytest.raises(_core.InvalidArgument, match=f"expected one of: auto, {', '.join(ISAS)}"):
        core.resolve_isa("avx9", "avx512bf16")


def test_gemm_14_a_plan_keeps_to_its_instruction_set() -> None:
    for isa in core.isas_here():
        allowed = ["reference", *HAS[isa]]
        for weight in ("f32", "f16", "bf16", "q8_0", "q6_k"):
            (kernel,) = core.gemm_plan(core.cpu_caps(isa), weight, 64, 256)["kernels"]
            assert kernel["name"].rsplit("_")[-1] in allowed


def symbols(path: Path) -> list[tuple[str, str]]:
    lines = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(line[17], line[19:]) for line in lines]


def leaks(found: list[tuple[str, str]]) -> list[str]:
    """Symbols by which a linker could take this file's code for another's: weak ones, and any outside our names."""
    return [name for kind, name in found if kind in "WVuvw" or (kind in "TDBR" and not name.startswith("imp::"))]


def test_gemm_14_no_object_of_an_instruction_set_shares_its_code() -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    found = ROOT.glob("build/*/csrc/CMakeFiles/imp_core.dir/**/*.cpp.o")
    objects = sorted(path for path in found if path.name.rpartition("_")[2].startswith(("avx", "neon")))
    if not objects:
        pytest.skip("no build folder here: imp was installed from a wheel")
    assert {path.name: leaks(symbols(path)) for path in objects if leaks(symbols(path))} == {}
    assert any(name.startswith("imp::cpu::run_q8_0_") for path in objects for _, name in symbols(path))
    # The check can fail: an ordinary object does share templates of the standard library.
    ordinary = {path.parents[1] / "cpu_linear.cpp.o" for path in objects if path.name.startswith("kernels_")}
    assert ordinary and all(leaks(symbols(path)) for path in ordinary)
