"""Every dtype decodes bit for bit as in the `gguf` package (F8_E4M3: `ml_dtypes`), also for extreme values."""

from __future__ import annotations

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import quants

from imp_service import _testing as core
from support.kernels.block_scales import FLOAT16_SCALES, QUANTIZED_TYPES, set_float16, set_scales
from support.kernels.weights import block_of, decode

NAMES = [row["name"] for row in core.dtypes()]

# Zeros, the smallest and largest subnormals, one, and the largest finite value, of both signs.
EXTREME_SCALES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]
# Infinities and NaNs (quiet, signalling, with payload), of both signs.
NOT_FINITE = [0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFDFF]


def row_of(name: str) -> dict[str, int]:
    return next(row for row in core.dtypes() if row["name"] == name)


def oracle(name: str, blocks: np.ndarray) -> np.ndarray:
    if name == "f8_e4m3":
        codes = np.ascontiguousarray(blocks[:, 4:]).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        with np.errstate(all="ignore"):
            return (np.ascontiguousarray(blocks[:, :4]).view(np.float32) * codes).ravel()
    with np.errstate(all="ignore"):
        return quants.dequantize(blocks, gguf.GGMLQuantizationType[name.upper()]).ravel()


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compares bits; all NaN are equal."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


def random_blocks(name: str, n_blocks: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, NAMES.index(name)])
    return rng.integers(0, 256, (n_blocks, row_of(name)["block_bytes"]), dtype=np.uint8)


def extreme_blocks(name: str, scales: list[int]) -> np.ndarray:
    """Returns blocks with every pair of scales, for random integers and for integers of all zeros and all ones."""
    n_fields = len(FLOAT16_SCALES[name])
    blocks = []
    for first in scales:
        for second in scales if n_fields == 2 else [0]:
            for block in [random_blocks(name, 1, first)[0], None, None]:
                fill = 0x00 if len(blocks) % 3 == 1 else 0xFF
                base = np.full(row_of(name)["block_bytes"], fill, np.uint8) if block is None else block.copy()
                for field, scale in zip(range(n_fields), [first, second], strict=False):
                    set_float16(name, base[None], field, np.array(scale, np.uint16))
                blocks.append(base)
    return np.stack(blocks)


@pytest.mark.few(13)
@pytest.mark.parametrize("name", NAMES)
def test_mod_3_random_blocks_decode_to_the_definition(name: str) -> None:
    blocks = random_blocks(name, 999, seed=3)
    assert_same_bits(core.dequantize(name, blocks.tobytes()), oracle(name, blocks))


@pytest.mark.few(10)
@pytest.mark.parametrize("name", FLOAT16_SCALES)
def test_mod_3_extreme_scales_decode_to_the_definition(name: str) -> None:
    blocks = extreme_blocks(name, EXTREME_SCALES + NOT_FINITE)
    actual = core.dequantize(name, blocks.tobytes())
    assert_same_bits(actual, oracle(name, blocks))
    # A non-finite scale changes every element that it multiplies, whatever the integers are.
    for scale in NOT_FINITE:
        assert not np.isfinite(core.dequantize(name, extreme_blocks(name, [scale]).tobytes())).any()


def test_mod_3_every_exponent_decodes_to_the_definition() -> None:
    """With the lowest exponent the values are subnormal, with the highest infinite."""
    blocks = random_blocks("mxfp4", 256, seed=7)
    blocks[:, 0] = np.arange(256)
    blocks[:, 1:9] = [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]  # every level
    values = core.dequantize("mxfp4", blocks.tobytes())
    assert_same_bits(values, oracle("mxfp4", blocks))
    assert (subnormal(values).reshape(256, 32).any(axis=1) == (np.arange(256) < 2)).all()
    assert (np.isinf(values).reshape(256, 32).any(axis=1) == (np.arange(256) > 252)).all()


def test_mod_3_every_code_under_every_kind_of_scale_decodes_to_the_definition() -> None:
    """Two of the codes are NaN. The scales are the extremes that the file reader accepts, of both signs, and zero."""
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    scales = np.float32([0.0, -0.0, 2.0**-100, -(2.0**-100), 1.0, -0.3, 448.0, np.nextafter(np.float32(2.0**100), 0)])
    blocks = np.concatenate([np.tile(codes, (len(scales), 1)), np.zeros((32, 4), np.uint8)], axis=1)
    blocks = np.roll(blocks, 4, axis=1)
    blocks[:, :4] = np.repeat(scales, 4).reshape(-1, 1).view(np.uint8)
    values = core.dequantize("f8_e4m3", blocks.tobytes())
    assert_same_bits(values, oracle("f8_e4m3", blocks))
    assert_same_bits(values, decode("f8_e4m3", blocks.ravel(), len(blocks), 64).ravel())
    assert np.isnan(values).sum() == 2 * len(scales)
    assert not subnormal(values).any()
    assert not np.isinf(values).any()


def subnormal(values: np.ndarray) -> np.ndarray:
    return (values != 0) & (np.abs(values) < np.finfo(np.float32).tiny)


@pytest.mark.parametrize("name", FLOAT16_SCALES)
def test_mod_3_no_decoded_value_is_subnormal(name: str) -> None:
    """Compute threads flush subnormals, so decoding gives the same values there."""
    blocks = np.concatenate([random_blocks(name, 500, seed=4), extreme_blocks(name, EXTREME_SCALES)])
    assert not subnormal(core.dequantize(name, blocks.tobytes())).any()


@pytest.mark.parametrize("name", QUANTIZED_TYPES)
def test_mod_3_control_one_flipped_bit_is_seen(name: str) -> None:
    """The comparison detects a single integer that changed by one."""
    rng = np.random.default_rng(5)
    blocks = random_blocks(name, 4, seed=5)
    set_scales(name, blocks, rng, (0.3, 0.4), signs=True)  # finite, because NaN would hide a difference
    changed = blocks.copy()
    changed[2, len(changed[2]) // 2] ^= 1
    with pytest.raises(AssertionError):
        assert_same_bits(core.dequantize(name, changed.tobytes()), oracle(name, blocks))


def test_mod_3_blocks_of_any_alignment() -> None:
    for name in NAMES:
        blocks = random_blocks(name, 5, seed=6).tobytes()
        together = core.dequantize(name, blocks)
        size = row_of(name)["block_bytes"]
        parts = [core.dequantize(name, blocks[i : i + size]) for i in range(0, len(blocks), size)]
        np.testing.assert_array_equal(together.view(np.uint32), np.concatenate(parts).view(np.uint32))


def test_mod_3_rows_that_do_not_fill_blocks_are_refused() -> None:
    for row in core.dtypes():
        block = row["block_elements"]
        assert core.row_bytes(row["name"], 3 * block) == 3 * row["block_bytes"]
        assert core.row_bytes(row["name"], 0) == 0
        assert core.row_bytes(row["name"], -block) is None
        if block > 1:
            assert core.row_bytes(row["name"], 3 * block + 1) is None
            assert core.row_bytes(row["name"], 3 * block - 1) is None
    assert core.row_bytes("f32", 2**61 - 1) == 4 * (2**61 - 1)
    assert core.row_bytes("f32", 2**61) is None


def test_mod_3_the_table_agrees_with_the_format() -> None:
    plain = ["f32", "f16", "bf16"]
    blocks_of_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"]
    blocks_of_256 = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"]
    trits_and_grids = ["tq1_0", "tq2_0", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"]
    assert sorted(NAMES) == sorted([*plain, *blocks_of_32, *blocks_of_256, *trits_and_grids, "f8_e4m3"])
    for row in core.dtypes():
        assert (row["block_elements"], row["block_bytes"]) == block_of(row["name"])
