"""Each kernel against float64, and the memory that it may access."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.gemm_families import BOUNDS, CASES, KERNELS, QUANTIZING, k_of
from imp_service import _testing as core
from support.kernels.weights import random_rows, random_weight
from support.oracles import tolerances

ROWS = [1, 2, 7, 8, 17, 33, 64, 513]
N = 53  # three whole panels and a partial one
Floats = NDArray[np.float32]


# The bounds above hold for the worst case; over a row, errors of both signs cancel.
RMS = {"bf16": tolerances.BFLOAT16_ACTIVATIONS_RMS, "q8_block32": tolerances.INT8_ACTIVATIONS_RMS}


@functools.lru_cache(maxsize=16)
def oracle(weight: str, activations: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the exact products of the maximum number of rows, and their error bounds."""
    k = k_of(weight, 288)
    x = random_rows(max(ROWS), k).astype(np.float64)
    w = random_weight(weight, N, k).values.astype(np.float64)
    return x @ w.T, BOUNDS[activations](x, w)


def check_against_float64(kernel: str, weight: str, m: int, out: Floats) -> None:
    activations = KERNELS.get(kernel, KERNELS["reference"])["activations"]
    exact, bound = (rows[:m] for rows in oracle(weight, activations))
    error = np.abs(out - exact)
    assert (error <= bound).all()
    rms = np.sqrt((error**2).mean(axis=1) / (exact**2).mean(axis=1))
    assert (rms <= RMS.get(activations, np.inf)).all()


def run(kernel: str, weight: str, m: int, **how: object) -> Floats:
    k = k_of(weight, 288)
    rows = random_rows(max(ROWS), k)[:m]
    return core.gemm_run_kernel(kernel, weight, random_weight(weight, N, k).file, N, rows, **how)


@pytest.mark.sweep("kernel,weight", "m")
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize(("kernel", "weight"), CASES)
def test_gemm_9_gemm_10_equals_float64_and_writes_nothing_else(kernel: str, weight: str, m: int) -> None:
    check_against_float64(kernel, weight, m, run(kernel, weight, m, cuts=[16, 48], fill=0xFF))


@pytest.mark.parametrize("weight", ["f32", "q8_0"])
def test_gemm_7_hon_11_control_a_kernel_that_writes_zeros_is_caught(weight: str) -> None:
    with pytest.raises(AssertionError):
        check_against_float64("broken_zeros", weight, 7, run("broken_zeros", weight, 7))


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "weight"), [case for case in CASES if KERNELS[case[0]]["activations"] == "f32"])
def test_gemm_10_control_a_changed_weight_is_caught(kernel: str, weight: str) -> None:
    """Changes one bit. Quantizing kernels have a separate control, where their bound is narrow."""
    k = k_of(weight, 288)
    file = random_weight(weight, N, k).file.copy()
    file[len(file) // 2 + 3] ^= 0x40
    out = core.gemm_run_kernel(kernel, weight, file, N, random_rows(max(ROWS), k)[:8])
    with pytest.raises(AssertionError):
        check_against_float64(kernel, weight, 8, out)


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        ("broken_output", "between the rows of the output"),
        ("broken_scratch", "beside the scratch"),
        ("broken_weights", "into the weights"),
    ],
)
def test_gemm_9_control_a_stray_write_is_caught(kernel: str, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        run(kernel, "f32", 2)


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "weight"), CASES)
def test_det_16_no_bit_depends_on_stale_memory(kernel: str, weight: str) -> None:
    """Fills memory with zeros, with 0x3f (a float near 0.75) and with 0xff (NaN)."""
    zeros, ones, nans = (run(kernel, weight, 9, fill=fill) for fill in (0x00, 0x3F, 0xFF))
    np.testing.assert_array_equal(zeros.view(np.uint32), ones.view(np.uint32))
    np.testing.assert_array_equal(zeros.view(np.uint32), nans.view(np.uint32))


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "weight"), [case for case in CASES if KERNELS[case[0]]["activations"] == QUANTIZING]
)
def test_gemm_18_prefetches_change_no_bit(kernel: str, weight: str, m: int) -> None:
    without, with_them = (run(kernel, weight, m, prefetching_rows=rows) for rows in (m + 1, m))
    np.testing.assert_array_equal(without.view(np.uint32), with_them.view(np.uint32))


@pytest.mark.parametrize("kernel", [name for name, row in KERNELS.items() if row["activations"] == QUANTIZING])
def test_gemm_10_a_ragged_k_is_refused_in_words(kernel: str) -> None:
    reason = core.gemm_refusal(kernel, {"cpu": KERNELS[kernel]["isa"]}, KERNELS[kernel]["weight"], 16, 80)
    assert "multiple of 32" in str(reason)
