"""AMX: portable tiles against NumPy, kernels on them against other kernels, plans, and the compiled instructions.

Kernels on portable tiles are members of the families in test_gemm_families.py and test_gemm_kernels.py, and the real
ones are too where the CPU has AMX. So these two files and this one are what validates the real ones.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.gemm_families import CASES, k_of
from imp_service import _core
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.weights import random_rows, random_weight

TILED = [row["weight"] for row in core.gemm_test_kernels() if row["name"].endswith("_twin")]
# The kernels on portable tiles, those with emulated instructions, and the real ones, as far as this machine runs them.
RUNNING = [name for name, _ in CASES if name.rpartition("_")[2] in ("twin", "emulated", "amxint8")]
SAPPHIRE_RAPIDS = {"cpu": "avx2vnni+avx512bf16+amxint8"}
HAS_LIST = platform.machine() in ("x86_64", "AMD64")
of_x86 = pytest.mark.skipif(not HAS_LIST, reason="the list of this processor's family has other kernels")
Bytes = NDArray[np.uint8]
Integers = NDArray[np.integer[Any]]


def dot_products(sums: Integers, a: Integers, b: Integers) -> NDArray[np.int32]:
    """Returns TDPBSSD's result: a row of `b` has 4 elements along k of each column. Sums wrap."""
    k, n = b.shape[0], b.shape[1] // 4
    columns = b.reshape(k, n, 4).transpose(0, 2, 1).reshape(4 * k, n)
    exact = sums.astype(np.int64) + a.astype(np.int64) @ columns.astype(np.int64)
    return exact.astype(np.uint32).view(np.int32)


def random_tiles(m: int, k: int, n: int, gap: int = 0) -> tuple[Bytes, Bytes, Bytes]:
    """Returns sums [m, n] of int32, a [m, 4k] and b [k, 4n] of int8, as bytes, with `gap` bytes after each row."""
    rng = np.random.default_rng([m, k, n])
    sums, a, b = (
        rng.integers(0, 256, (rows, width + gap), np.uint8) for rows, width in [(m, 4 * n), (m, 4 * k), (k, 4 * n)]
    )
    a[0, :4], b[0, :4] = 0x80, [0x80, 0x7F, 0xFF, 0]
    return sums, a, b


def product(m: int, k: int, n: int, tiles: tuple[Bytes, Bytes, Bytes]) -> Bytes:
    return core.tile_product([m, m, k], [4 * n, 4 * k, 4 * n], *tiles)


SIZES = [(m, k, n) for m in (1, 2, 9, 16) for k in (1, 8, 16) for n in (1, 7, 16)]


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_gemm_19_a_tile_has_the_products_of_signed_bytes(m: int, k: int, n: int) -> None:
    sums, a, b = tiles = random_tiles(m, k, n)
    found = product(m, k, n, tiles).view(np.int32)
    expected = dot_products(sums.view(np.int32), a.view(np.int8), b.view(np.int8))
    np.testing.assert_array_equal(found, expected)
    # The control: with unsigned bytes in either operand the products differ.
    assert (found != dot_products(sums.view(np.int32), a.astype(np.int16), b.view(np.int8))).any()
    assert (found != dot_products(sums.view(np.int32), a.view(np.int8), b.astype(np.int16))).any()


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_gemm_19_a_tile_reads_and_writes_only_its_rows_and_bytes(m: int, k: int, n: int) -> None:
    gap = 5
    sums, a, b = random_tiles(m, k, n, gap)
    more = tuple(np.concatenate([part, np.full((3, part.shape[1]), 0xA5, np.uint8)]) for part in (sums, a, b))
    found = product(m, k, n, more)
    within = [np.ascontiguousarray(part[:, :-gap]) for part in (sums, a, b)]
    np.testing.assert_array_equal(found[:m, :-gap], product(m, k, n, tuple(within)))
    np.testing.assert_array_equal(found[:, -gap:], more[0][:, -gap:])
    np.testing.assert_array_equal(found[m:], more[0][m:])


@pytest.mark.parametrize(
    ("rows", "row_bytes"),
    {
        "more rows of sums than of a": ([3, 2, 8], [64, 32, 64]),
        "b has not a row for each 4 elements of a": ([2, 2, 7], [64, 32, 64]),
        "b has other columns than sums": ([2, 2, 8], [64, 32, 60]),
        "part of an element": ([2, 2, 8], [62, 32, 62]),
        "no rows": ([0, 0, 8], [64, 32, 64]),
        "too many rows": ([17, 17, 8], [64, 32, 64]),
        "too many bytes": ([2, 2, 17], [64, 68, 64]),
    }.values(),
)
def test_gemm_19_what_faults_on_a_processor_is_refused(rows: list[int], row_bytes: list[int]) -> None:
    parts = [np.zeros((17, 68), np.uint8)] * 3
    assert core.tile_product([2, 2, 8], [64, 32, 64], *parts).shape == (17, 68)
    with pytest.raises(RuntimeError, match="would fault"):
        core.tile_product(rows, row_bytes, *parts)


def kernel_and_portable(kernel: str, m: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the outputs of a kernel named TYPE_something, and those of the portable kernel of its type."""
    dtype = "q8_0" if kernel == "broken_twin" else kernel.rpartition("_")[0]
    weight, x = random_weight(dtype, 37, k_of(dtype, 544)), random_rows(m, k_of(dtype, 544))
    found, expected = (
        core.gemm_run_kernel(name, dtype, weight.file, weight.n, x) for name in (kernel, f"{dtype}_generic")
    )
    return found, expected


@pytest.mark.few(2 * len(TILED))
@pytest.mark.parametrize("m", [1, 15, 16, 17, 31, 33, 63, 64, 65, 81, 200])
@pytest.mark.parametrize("kernel", RUNNING)
def test_gemm_19_kernels_on_tiles_give_the_bits_of_other_kernels(kernel: str, m: int) -> None:
    """Uses numbers of rows around those of a tile, and of the tiles that share a group's codes."""
    assert_same_bits(*kernel_and_portable(kernel, m))


def test_gemm_19_control_a_tile_with_unsigned_weights_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_same_bits(*kernel_and_portable("broken_twin", 17))


@of_x86
def test_gemm_19_each_type_has_a_kernel_on_tiles_that_is_the_same_on_amx() -> None:
    real = [row for row in core.gemm_kernels() if row["isa"] == "amxint8"]
    assert [row["name"] for row in real] == [f"{weight}_amxint8" for weight in TILED]
    assert [row["validated"] for row in real] == [False] * len(TILED)
    assert {f"{weight}_twin" for weight in TILED} <= set(RUNNING)
    if "avx512vnni" in core.isas_here():
        assert {f"{weight}_emulated" for weight in TILED} <= set(RUNNING)
    if "amxint8" not in core.isas_here():
        pytest.skip("this CPU lacks AMX, or the system refuses it")
    assert {row["name"] for row in real} <= set(RUNNING)


def plan(weight: str, **how: Any) -> str:
    text: str = core.gemm_plan(SAPPHIRE_RAPIDS, weight, 64, 256, **how)["description"]
    return text.removeprefix("panel16 q8_block32: ")


@of_x86
@pytest.mark.parametrize("deterministic", [False, True])
def test_gemm_16_gemm_19_tiles_multiply_many_rows_and_only_if_they_are_asked_for(deterministic: bool) -> None:
    tiled = "_avx512vnni up to 8 rows, {0}_amxint8 (has not run on its hardware)"
    for weight in TILED:
        expected = f"{weight}{tiled.format(weight)}"
        assert plan(weight, deterministic=deterministic) == f"{weight}_avx512vnni"
        assert plan(weight, deterministic=deterministic, unvalidated=True) == expected
        named = [(weight, f"{weight}_amxint8")]
        assert plan(weight, deterministic=deterministic, overrides=named) == expected
    for weight in ("q2_k", "q3_k", "q6_k"):
        assert plan(weight, deterministic=deterministic, unvalidated=True) == f"{weight}_avx512vnni"


@of_x86
def test_gemm_14_gemm_19_a_cpu_without_amx_refuses_its_kernels_in_words() -> None:
    assert core.gemm_refusal("q8_0_amxint8", {"cpu": "avx512bf16"}, "q8_0", 64, 64) == "needs AMX int8"


@of_x86
@pytest.mark.long
def test_gemm_19_the_extension_has_the_instructions() -> None:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    command = ["objdump", "-d", "--no-show-raw-insn", str(_core.__file__)]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("ldtilecfg", "tilezero", "tileloadd", "tdpbssd", "tilestored", "tilerelease"):
        assert f"\t{name}" in code
    # The control: no kernel uses products of unsigned bytes.
    assert "\ttdpbuud" not in code
