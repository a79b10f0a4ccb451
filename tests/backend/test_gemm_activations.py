"""Quantization of activations follows its definition, row by row, and is the same on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.gemm_families import CASES, KERNELS, QUANTIZING, k_of
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.weights import MIN_OFFSETS, magnitudes, random_rows, random_weight
from support.oracles import tolerances

ISAS = [isa for isa in core.isas_here() if isa in ("generic", "avx2", "avx512")]
Floats = NDArray[np.float32]


def quantize(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Returns the quantized rows by definition, in NumPy's float32."""
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(axis=2)
    with np.errstate(all="ignore"):
        codes = np.rint(blocks * (np.float32(127) / largest)[..., None])
        scales = largest / np.float32(127)
    unusable = ~np.isfinite(largest)
    nothing = unusable | (largest < np.float32(2.0**-119))
    codes[nothing] = 0
    scales[nothing] = 0
    scales[unusable] = np.nan
    return codes.astype(np.int8).reshape(x.shape), scales


def hard_rows() -> Floats:
    rows = np.concatenate(
        [random_rows(40, 96), random_rows(9, 96) * np.float32(1e-36), random_rows(9, 96) * np.float32(1e-37)]
    )
    rows[1] = np.round(rows[1] * 8) + np.float32(0.5)  # ties
    rows[1, ::32] = 127
    rows[2, 40] = np.inf
    rows[3, 70] = -np.inf
    rows[4, 3] = np.nan
    rows[5, 32:64] = 0
    rows[6, :32] = np.float32(-0.0)
    rows[7] = np.float32(1e-42)
    rows[8, 64:] = np.float32(2.0**-119)
    rows[9, 64:] = np.nextafter(np.float32(2.0**-119), np.float32(0))
    rows[10, 5] = np.finfo(np.float32).max
    return rows


@pytest.mark.parametrize("isa", ISAS)
def test_det_7_gemm_10_quantization_is_its_definition(isa: str) -> None:
    x = hard_rows()
    codes, scales, biases = core.gemm_quantize_rows(isa, x)
    expected_codes, expected_scales = quantize(x)
    np.testing.assert_array_equal(codes, expected_codes)
    assert_same_bits(scales, expected_scales)
    sums = expected_codes.reshape(len(x), -1, 32).astype(np.int32).sum(axis=2)
    np.testing.assert_array_equal(biases, -128 * sums)


@pytest.mark.parametrize(("kernel", "dtype"), [case for case in CASES if KERNELS[case[0]]["activations"] == QUANTIZING])
def test_gemm_10_products_of_quantized_rows_are_right_to_the_last_places(kernel: str, dtype: str) -> None:
    """If the quantized activations are the exact input, only the sum's roundings remain."""
    k = k_of(dtype, 640)
    x, weight = random_rows(9, k), random_weight(dtype, 53, k)
    codes, scales = quantize(x)
    exact_x = (codes.reshape(9, -1, 32) * scales.astype(np.float64)[..., None]).reshape(9, k)
    exact = exact_x @ weight.values.T.astype(np.float64)
    bound = tolerances.sum_of_blocks(exact_x, magnitudes(weight), n_sums=1 + (dtype in MIN_OFFSETS))
    out = core.gemm_run_kernel(kernel, dtype, weight.file, 53, x)
    assert (np.abs(out - exact) <= bound).all()
    changed = weight.file.copy()
    changed[len(changed) // 2 + 3] ^= 0x10  # the control: one bit of one code
    out = core.gemm_run_kernel(kernel, dtype, changed, 53, x)
    assert not (np.abs(out - exact) <= bound).all()


@pytest.mark.parametrize("kernel", [name for name, row in KERNELS.items() if row["activations"] == "bf16"])
@pytest.mark.parametrize("k", [1, 2, 47, 640, 1025])
@pytest.mark.parametrize("m", [1, 9])
def test_gemm_10_products_of_rounded_rows_are_right_to_the_last_places(kernel: str, m: int, k: int) -> None:
    if (kernel, "bf16") not in CASES:
        pytest.skip("this CPU cannot run it")
    weight, x = random_weight("bf16", 117, k), random_rows(m, k)
    # Round to nearest even: add half a unit, minus one if the last kept bit is even.
    words = x.view(np.uint32).astype(np.uint64)
    rounded = ((words + 0x7FFF + (words >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    exact_x, w = rounded.astype(np.float64), weight.values.astype(np.float64)
    out = core.gemm_run_kernel(kernel, "bf16", weight.file, 117, x)
    bound = tolerances.sum_of_products(exact_x, w)
    assert (np.abs(out - exact_x @ w.T) <= bound).all()
    assert not (np.abs(out - x @ w.T) <= bound).all()  # the control: rows that were not rounded


def test_det_14_a_row_of_extremes_changes_no_bit_of_its_neighbour() -> None:
    weight, small = random_weight("q8_0", 64, 256), random_rows(1, 256) * np.float32(1e-6)
    pool = core.ThreadPool(2)
    (alone,), _ = core.gemm_linear([("q8_0", weight.file, 64, None)], small, pool)
    for extreme in (np.float32(3e38), np.float32(np.nan), np.float32(np.inf)):
        rows = np.concatenate([np.full_like(small, extreme), small, random_rows(6, 256) * np.float32(1e9)])
        (together,), _ = core.gemm_linear([("q8_0", weight.file, 64, None)], rows, pool)
        assert_same_bits(together[1:2], alone)
