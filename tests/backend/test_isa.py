"""Instruction sets: names, refusals, and no leak of code from one into another."""

from __future__ import annotations

import itertools
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from imp_service import _core
from imp_service import _testing as core

ROOT = Path(__file__).parents[2]
ISAS = ["generic", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "amxint8", "neondot", "neoni8mm"]


# `device.isa = "auto"` on these CPUs selects all of their instruction sets for which imp has kernels.
CPUS = {
    "before AVX2": "generic",
    "Zen 3": "avx2",
    "Zen 4": "avx512bf16",
    "Zen 5": "avx2vnni+avx512bf16",
    "Skylake-X": "avx512",
    "Ice Lake": "avx512vnni",
    "Sapphire Rapids": "avx2vnni+avx512bf16+amxint8",
    "Alder Lake": "avx2vnni",
    "Graviton 2": "neondot",
    "Graviton 3": "neoni8mm",
}
# For each CPU, the names of the instruction sets that it has.
HAS = {
    "before AVX2": ["generic"],
    "Zen 3": ["generic", "avx2"],
    "Zen 4": ["generic", "avx2", "avx512", "avx512vnni", "avx512bf16"],
    "Zen 5": ["generic", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16"],
    "Skylake-X": ["generic", "avx2", "avx512"],
    "Ice Lake": ["generic", "avx2", "avx512", "avx512vnni"],
    "Sapphire Rapids": ["generic", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "amxint8"],
    "Alder Lake": ["generic", "avx2", "avx2vnni"],
    "Graviton 2": ["generic", "neondot"],
    "Graviton 3": ["generic", "neondot", "neoni8mm"],
}
AVX2, AVX_VNNI, AVX512 = "AVX2 with FMA and F16C", "AVX-VNNI", "AVX-512 (F, BW, VL, DQ)"


@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_14_auto_is_all_of_each_cpu_and_a_word_is_a_part_of_it(cpu: str) -> None:
    here = CPUS[cpu]
    assert core.resolve_isa("auto", here) == here
    for isa in ISAS:
        if isa in HAS[cpu]:
            assert core.resolve_isa(isa, here) == isa
        else:
            with pytest.raises(_core.DeviceError, match=f", which {isa} means; it has: {', '.join(HAS[cpu])}$"):
                core.resolve_isa(isa, here)


@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_14_each_kernel_that_a_cpu_has_is_offered_and_no_other(cpu: str) -> None:
    """Uses rows of both processor families, because this build's list has only one."""
    rows = [
        {"name": f"q8_0_{isa}", "weight": "q8_0", "layout": "panel16", "reduction": "q8_block32", "max_m": None,
         "needs": "", "isa": isa, "validated": True}
        for isa in reversed(ISAS)
    ]  # fmt: skip
    rows.append({**rows[-1], "name": "reference", "weight": "any", "layout": "file", "reduction": "f32_sequential"})
    caps = {"cpu": CPUS[cpu]}
    offered = core.gemm_interchangeable(caps, "q8_0", 64, 64, 4, kernels=rows)
    assert offered == [f"q8_0_{isa}" for isa in reversed(HAS[cpu])]
    own = core.gemm_interchangeable(caps, "q8_0", 64, 64, 4)
    listed = [row for row in core.gemm_kernels() if row["weight"] == "q8_0" and row["isa"] in HAS[cpu]]
    assert own == [row["name"] for row in listed if row["validated"]]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the list of this processor's family has other kernels")
@pytest.mark.parametrize(
    ("cpu", "chosen"),
    {
        "before AVX2": ("q8_0_generic", "f32_generic", "bf16_generic", "generic"),
        "Zen 3": ("q8_0_avx2", "f32_avx2", "bf16_avx2", "avx2"),
        "Zen 4": ("q8_0_avx512vnni", "f32_avx512", "bf16_avx512bf16", "avx512bf16"),
        "Zen 5": ("q8_0_avx512vnni", "f32_avx512", "bf16_avx512bf16", "avx512bf16"),
        "Skylake-X": ("q8_0_avx2", "f32_avx512", "bf16_avx512", "avx512"),
        "Ice Lake": ("q8_0_avx512vnni", "f32_avx512", "bf16_avx512", "avx512vnni"),
        "Sapphire Rapids": ("q8_0_avx512vnni", "f32_avx512", "bf16_avx512bf16", "avx512bf16"),
        "Alder Lake": ("q8_0_avx2vnni", "f32_avx2", "bf16_avx2", "avx2vnni"),
    }.items(),
)
def test_gemm_8_what_each_cpu_runs_by_order(cpu: str, chosen: tuple[str, ...]) -> None:
    caps = {"cpu": CPUS[cpu]}
    plans = [core.gemm_plan(caps, weight, 64, 64)["kernels"] for weight in ("q8_0", "f32", "bf16")]
    assert (*[kernel["name"] for (kernel,) in plans], core.cpu_ops(CPUS[cpu])) == chosen


def test_gemm_14_a_set_of_features_has_one_name_and_a_name_one_set() -> None:
    assert core.isa_features("generic") == []
    assert core.isa_features("avx2vnni") == [AVX2, AVX_VNNI]
    assert core.isa_features("avx512") == [AVX2, AVX512]
    sets: dict[tuple[str, ...], str] = {}
    for words in itertools.chain.from_iterable(itertools.combinations(ISAS, n) for n in range(1, len(ISAS) + 1)):
        features = tuple(core.isa_features("+".join(words)))
        assert {feature for word in words for feature in core.isa_features(word)} == set(features)
        name = _core.isa_name("+".join(reversed(words)))
        assert sets.setdefault(features, name) == name
        assert tuple(core.isa_features(name)) == features
        assert len(name.split("+")) <= len(words)
    assert len(set(sets.values())) == len(sets)


def test_gemm_14_what_the_cpu_lacks_fails_with_the_list() -> None:
    with pytest.raises(_core.DeviceError) as caught:
        core.resolve_isa("avx512+avx2vnni", "avx2")
    assert caught.value.reason == "DEVICE_MISSING"
    assert caught.value.message == (
        f"isa: this CPU lacks {AVX_VNNI} and {AVX512}, which avx512+avx2vnni means; it has: generic, avx2"
    )
    for wrong in ("avx9", "avx2+", "", "avx2 avx512", "auto+avx2"):
        with pytest.raises(_core.InvalidArgument, match=f"expected one of: auto, {', '.join(ISAS)}, or some joined"):
            core.resolve_isa(wrong, "avx512bf16")


def test_gemm_14_this_cpu_is_named_by_all_it_has() -> None:
    features = {feature for isa in core.isas_here() for feature in core.isa_features(isa)}
    assert set(core.isa_features(_core.isa_name())) == features
    assert core.Device().name.endswith(f" ({_core.isa_name()})")
    assert _core.missing_isa(_core.isa_name()) == ""
    elsewhere = "avx2" if "neondot" in core.isas_here() else "neondot"
    assert _core.missing_isa(elsewhere) == ", ".join(core.isa_features(elsewhere))


def test_gemm_14_a_plan_keeps_to_its_instruction_set() -> None:
    for isa in core.isas_here():
        allowed = set(core.isa_features(isa))
        for weight in ("f32", "f16", "bf16", "q8_0", "q6_k"):
            (kernel,) = core.gemm_plan(core.cpu_caps(isa), weight, 64, 256)["kernels"]
            assert set(core.isa_features(kernel["isa"])) <= allowed


def symbols(path: Path) -> list[tuple[str, str]]:
    lines = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(line[17], line[19:]) for line in lines]


def leaks(found: list[tuple[str, str]]) -> list[str]:
    """Returns symbols by which a linker could use this file's code for another: weak ones, and any outside `imp::`."""
    return [name for kind, name in found if kind in "WVuvw" or (kind in "TDBR" and not name.startswith("imp::"))]


@pytest.mark.long
def test_gemm_14_no_object_of_an_instruction_set_shares_its_code() -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    found = ROOT.glob("build/*/csrc/CMakeFiles/imp_core.dir/**/*.cpp.o")
    objects = sorted(path for path in found if path.name.rpartition("_")[2].startswith(("avx", "amx", "neon")))
    if not objects:
        pytest.skip("no build folder here: imp was installed from a wheel")
    assert {path.name: leaks(symbols(path)) for path in objects if leaks(symbols(path))} == {}
    assert any(name.startswith("imp::cpu::run_q8_0_") for path in objects for _, name in symbols(path))
    # The check can fail: an ordinary object shares templates of the standard library.
    ordinary = {path.parents[1] / "cpu_linear.cpp.o" for path in objects if path.name.startswith("kernels_")}
    assert ordinary and all(leaks(symbols(path)) for path in ordinary)
