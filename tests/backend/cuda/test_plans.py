"""Which kernels GPUs get, decided from their capabilities and the compiled code as data, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.devices import GPU_KINDS, emulated_only
from support.kernels.gpu_gemm import INTEGER_TYPES, TILE_TYPES
from support.kernels.weights import block_of, random_rows, random_weight
from support.oracles import tolerances

GPUS = ("h200", "a100")
LIST = _core.kernels(GPU_KINDS[0])
DTYPES = [row["name"] for row in core.dtypes()]
N = 4096
Plan = list[tuple[str, int | None]]  # kernels and the maximum rows of each; None: any


def plan(gpu: str, dtype: str, k: int = 4096, **how: Any) -> Plan:
    made = core.gpu_gemm_plan(gpu, dtype, N, k, **how)
    return [(row["name"], row["rows"]) for row in made["kernels"]]


def described(gpu: str, dtype: str, **how: Any) -> str:
    text: str = core.gpu_gemm_plan(gpu, dtype, N, 4096, **how)["description"]
    return text.replace(" (has not run on its hardware)", "")


def golden(gpu: str, deterministic: bool) -> dict[str, str]:
    """Returns the plan of every type: int8 for few rows, matrix instructions for more, warpgroups if any for many."""
    most = "wgmma" if gpu == "h200" else "hmma"
    table = dict.fromkeys(DTYPES, "file f32_sequential: reference")
    for dtype in INTEGER_TYPES:
        table[dtype] = f"tile16 q8_slices: {dtype}_dp4a up to 4 rows, {dtype}_imma"
    for dtype in ("f8_e4m3", "f16", "bf16"):
        table[dtype] = f"tile16 float_slices: {dtype}_mma"
    if not deterministic:
        table |= {dtype: f"{table[dtype]} up to 64 rows, {dtype}_{most}" for dtype in TILE_TYPES}
    return table


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_gemm_8_det_13_plans_of_two_gpus_for_every_type(gpu: str, deterministic: bool) -> None:
    found = {dtype: described(gpu, dtype, deterministic=deterministic) for dtype in DTYPES}
    assert found == golden(gpu, deterministic)
    if (gpu, deterministic) == ("h200", False):
        assert found["q4_k"] == "tile16 q8_slices: q4_k_dp4a up to 4 rows, q4_k_imma up to 64 rows, q4_k_wgmma"


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_gemm_6_every_weight_has_a_kernel_for_any_number_of_rows(gpu: str, deterministic: bool) -> None:
    for dtype in DTYPES:
        for blocks in (1, 3, 1000):
            for of_experts in (False, True):
                how = {"k": blocks * block_of(dtype)[0], "deterministic": deterministic, "of_experts": of_experts}
                kernels = plan(gpu, dtype, **how)
                most = [rows for _, rows in kernels]
                assert most[-1] is None
                assert most[:-1] == sorted(rows for rows in most if rows)


def test_gemm_6_every_row_of_the_list_is_reached() -> None:
    """The order reaches rows on one of the GPUs, or an override does; a library's row needs the library."""
    reached = {
        name
        for gpu in GPUS
        for dtype in DTYPES
        for deterministic in (False, True)
        for name, _ in plan(gpu, dtype, deterministic=deterministic)
    }
    left = [row for row in LIST if row["name"] not in reached]
    assert {row["reduction"] for row in left} == {"library"}
    for row in left:
        with pytest.raises(Exception, match="cuBLASLt is not available"):  # and nothing else prevents it
            plan("h200", row["weight"], overrides=[(row["weight"], row["name"])])
    for row in LIST:
        if row["reduction"] != "library" and row["weight"] != "any":
            gpu = "h200" if row["name"].endswith("wgmma") else "a100"
            assert row["name"] in dict(plan(gpu, row["weight"], overrides=[(row["weight"], row["name"])]))
    assert dict(plan("a100", "q4_k", overrides=[("q4_k", "reference")])) == {"reference": None}
    with pytest.raises(Exception, match="warpgroups"):
        plan("a100", "q4_k", overrides=[("q4_k", "q4_k_wgmma")])


@pytest.mark.parametrize(("gpu", "k"), [("a100", 30 << 10), ("h200", 44 << 10)])
@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_gemm_2_rows_too_long_for_shared_memory_go_to_the_kernel_that_needs_none(gpu: str, k: int, dtype: str) -> None:
    """Four rows of int8 with their scales take 320 bytes for each 256 elements of a row."""
    assert plan(gpu, dtype, k=k)[0] == (f"{dtype}_dp4a", 4)
    longer = plan(gpu, dtype, k=2 * k)
    assert longer[0][0] == f"{dtype}_imma"
    with pytest.raises(Exception, match="k is too large for four rows in shared memory"):
        plan(gpu, dtype, k=2 * k, overrides=[(dtype, f"{dtype}_dp4a")])


def test_gemm_16_by_default_no_plan_takes_what_is_emulated() -> None:
    """If all candidates are unvalidated, including the reference, there is no plan."""
    waiting = {row["name"] for row in LIST if not row["validated"]}
    for gpu in GPUS:
        for dtype in DTYPES:
            named = {name for name, _ in plan(gpu, dtype)}
            if named <= waiting and "reference" in waiting:
                with pytest.raises(Exception, match="no kernel for them has run on hardware"):
                    plan(gpu, dtype, unvalidated=False)


@pytest.mark.parametrize("device", GPU_KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_15_every_type_that_the_cpu_loads_is_loaded_and_multiplied(device: str, dtype: str) -> None:
    """Types without kernels of their own are decoded during the product: none is refused."""
    gpu, (elements, _) = core.Device(kind=device), block_of(dtype)
    k = elements * (1 if elements > 32 else 2)
    weight, x = random_weight(dtype, 16, k), random_rows(2, k)
    [out] = gpu.linear(x, [(16, (dtype, weight.file, None))], fill=0xFF)
    exact = x.astype(np.float64) @ weight.values.T.astype(np.float64)
    off = np.sqrt(np.mean((out - exact) ** 2) / np.mean(exact**2))
    assert off < tolerances.INT8_ACTIVATIONS_RMS
    assert np.sqrt(np.mean((out - exact[::-1]) ** 2) / np.mean(exact**2)) > 10 * tolerances.INT8_ACTIVATIONS_RMS


@pytest.mark.parametrize(
    ("images", "capability", "serves", "wgmma"),
    [
        ("90a-real", 90, True, True),
        ("90a-real", 80, False, False),
        ("90a-real", 100, False, False),
        ("90-real", 90, True, False),  # Hopper without the instructions of 90a
        ("90a", 90, True, True),
        ("90a", 100, False, False),
        ("90", 120, True, False),
        ("80-real", 80, True, False),
        ("80-real", 86, True, False),  # same generation
        ("86-real", 80, False, False),
        ("80-real", 90, False, False),
        ("80-virtual", 90, True, False),
        ("80-real 90a-real", 90, True, True),
        ("80-real 90a-real", 89, True, False),
        ("80-real 90a-real", 120, False, False),
        ("100f-real", 103, True, False),
        ("100f", 120, False, False),
        ("", 90, False, False),
    ],
)
def test_what_a_build_has_code_for(images: str, capability: int, serves: bool, wgmma: bool) -> None:
    assert core.gpu_images_serve(images, capability) == (serves, wgmma)


@emulated_only
def test_a_gpu_of_another_kind_is_missing_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMP_EMULATED_GPU", "only_90a")
    core.Device(kind="cuda_emulated")
    monkeypatch.setenv("IMP_EMULATED_GPU", "only_90a compute_capability=86")
    with pytest.raises(_core.DeviceError) as caught:
        core.Device(kind="cuda_emulated")
    assert caught.value.reason == "DEVICE_MISSING"
    assert "has compute capability 8.6, expected a GPU that this build supports: 90a-real" in caught.value.message
