"""The preparation of activations for the GPU's kernels, against NumPy in float64 and the CPU's rounding."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS, GPUS
from support.kernels.prepared_rows import BLOCK, FORMATS, float16_parts, int8_parts, padded
from support.kernels.weights import random_rows, random_weight
from support.oracles.tolerances import rounding_of_sum

Array = np.ndarray


def prepared(x: Array, name: str, thread_order: int = 0) -> Array:
    """Returns a row of bytes for each row of x; checks that the emulated GPU and a real one agree."""
    found = [core.cuda_prepare_rows(device, x, name, thread_order) for device in GPU_KINDS]
    for other in found[1:]:
        assert np.array_equal(other, found[0])
    return found[0].reshape(len(x), -1)


def quantized(x: Array, thread_order: int = 0) -> tuple[Array, Array, Array]:
    return int8_parts(prepared(x, "q8_rows", thread_order), x.shape[1])


def scaled(x: Array, name: str = "f16_rows", thread_order: int = 0) -> tuple[Array, Array]:
    return float16_parts(prepared(x, name, thread_order), x.shape[1], name)


@pytest.mark.parametrize("k", [32, 256, 288, 1000])
def test_gemm_10_int8_rows_are_within_half_a_step(k: int) -> None:
    x = random_rows(5, k)
    codes, scales, sums = quantized(x)
    assert (codes[:, k:] == 0).all()
    wide = np.zeros((5, padded(k)))
    wide[:, :k] = x
    blocks = wide.reshape(5, -1, BLOCK)
    largest = np.abs(blocks).max(axis=2)
    assert (np.abs(scales - largest / 127) <= largest / 127 * rounding_of_sum(1)).all()
    steps = codes.reshape(blocks.shape).astype(np.float64)
    error = np.abs(steps * scales[:, :, None].astype(np.float64) - blocks)
    bound = (largest / 127 * (0.5 + 127 * rounding_of_sum(3)))[:, :, None]
    assert (error <= bound).all()
    assert (np.abs(np.roll(steps, 1, axis=2) * scales[:, :, None] - blocks) > bound).any()
    assert np.array_equal(sums, steps.reshape(5, -1, 2, 16).sum(axis=3))


def test_det_14_int8_rows_have_the_bits_of_the_cpu() -> None:
    x = np.concatenate([random_rows(3, 512), random_rows(3, 512, seed=1) * np.float32(1e-34), np.zeros((1, 512))])
    x = x.astype(np.float32)
    x[0, :32] = [2.5, -0.5, 1.5, 127, *np.linspace(-1, 1, 28)]  # ties
    codes, scales, _ = quantized(x)
    expected_codes, expected_scales, _ = core.gemm_quantize_rows("auto", x)
    assert np.array_equal(codes, expected_codes)
    assert_same_bits(scales, expected_scales)


@pytest.mark.parametrize("name", ["f16_rows", "f16_even_odd"])
@pytest.mark.parametrize("k", [1, 17, 256, 700])
def test_gemm_10_float16_rows_keep_eleven_bits_of_any_size(name: str, k: int) -> None:
    sizes = 10.0 ** np.array([0, 6, -6, 30, -30, 38, -37])
    x = np.clip(random_rows(7, k) * sizes[:, None], -3e38, 3e38).astype(np.float32)
    halves, factors = scaled(x, name)
    assert (halves[:, k:] == 0).all()
    largest = np.abs(halves[:, :k].astype(np.float64)).max(axis=1)
    assert (largest <= 2**14).all()
    assert (largest[:6] >= 2**13).all()
    mantissa, _ = np.frexp(factors)
    assert (mantissa == 0.5).all()
    values = halves[:, :k].astype(np.float64) * factors[:, None].astype(np.float64)
    # Half a unit in the last place of float16, or of its subnormals.
    bound = np.abs(x) * 2.0**-11 + 2.0**-25 * factors[:, None]
    assert (np.abs(values - x) <= bound).all()
    if k > 1:
        assert (np.abs(np.roll(values, 1, axis=1) - x) > bound).any()


def test_gemm_10_bfloat16_rows_are_rounded_to_nearest() -> None:
    x = random_rows(4, 300)
    x[1, :4] = [np.inf, -np.inf, np.nan, -0.0]
    x[2, :2] = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)  # ties, to even
    rows = prepared(x, "bf16_rows")
    assert rows.shape[1] == 2 * padded(300)
    words = np.ascontiguousarray(rows).view(np.uint16)
    assert (words[:, 300:] == 0).all()
    values = (words[:, :300].astype(np.uint32) << 16).view(np.float32)
    assert np.isnan(values[1, 2])
    assert values[1, :2].tolist() == [np.inf, -np.inf]
    assert words[2, :2].tolist() == [0x3F80, 0x3F82]
    finite = np.isfinite(x)
    assert (np.abs(values[finite].astype(np.float64) - x[finite]) <= np.abs(x[finite]) * 2.0**-8).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_det_14_what_is_no_number_is_seen_where_it_was(bad: float) -> None:
    x = random_rows(3, 512)
    right_codes, right_scales, _ = quantized(x)
    right, right_factors = scaled(x)
    x[1, 100] = bad
    codes, scales, _ = quantized(x)
    assert np.isnan(scales[1, 3])
    assert np.isfinite(np.delete(scales.ravel(), 16 + 3)).all()
    assert np.array_equal(codes[[0, 2]], right_codes[[0, 2]])
    assert_same_bits(scales[[0, 2]], right_scales[[0, 2]])
    halves, factors = scaled(x)
    assert np.isnan(factors[1])
    assert np.array_equal(halves[[0, 2]], right[[0, 2]])
    assert_same_bits(factors[[0, 2]], right_factors[[0, 2]])


def test_gemm_10_zeros_stay_zeros() -> None:
    x = np.zeros((2, 96), np.float32)
    codes, scales, sums = quantized(x)
    assert not codes.any()
    assert not scales.any()
    assert not sums.any()
    halves, factors = scaled(x)
    assert not halves.any()
    assert np.isfinite(factors).all()


@pytest.mark.parametrize("name", FORMATS)
def test_det_1_a_rows_bytes_do_not_depend_on_its_company_or_on_the_order_of_threads(name: str) -> None:
    x = random_rows(9, 320)
    together = prepared(x, name)
    for order in (1, 2, 3):
        assert np.array_equal(prepared(x, name, order), together)
    for row in (0, 4, 8):
        assert np.array_equal(prepared(x[row : row + 1], name), together[row : row + 1])


@pytest.mark.parametrize("device", GPUS, ids=lambda device: device.name.replace(" ", "_"))
@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize(("dtype", "k"), [("q8_0", 288), ("q4_k", 768), ("bf16", 288), ("f16", 96), ("f32", 96)])
def test_krn_3_gemm_10_rows_that_a_norm_writes_for_its_reader_are_those_of_a_launch_of_their_own(
    device: core.Device, dtype: str, k: int, m: int
) -> None:
    """Compares bits. If the rows change afterwards, the kernels read the new values."""
    x, norm_weight = random_rows(m, k), random_rows(1, k)[0]
    matrix = (dtype, random_weight(dtype, 40, k).file, None)
    announced, plain = (device.norm_linear(x, norm_weight, 40, matrix, announced=flag) for flag in (True, False))
    assert_same_bits(announced, plain)
    doubled, expected = (
        device.norm_linear(x, norm_weight, 40, matrix, announced=flag, doubled=True) for flag in (True, False)
    )
    assert_same_bits(doubled, expected)
    assert (doubled != announced).any()
