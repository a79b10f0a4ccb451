"""Kernels of one family give equal bits: for every member, shape, number of rows and of threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.gemm_families import CASES, FAMILIES, KERNELS, k_of
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.block_scales import EXPONENTS, FLOAT16_SCALES, set_float16
from support.kernels.weights import (
    FLOAT_TYPES,
    WEIGHT_TYPES,
    Weight,
    block_of,
    decode,
    random_rows,
    random_weight,
)
from support.run.quick_run import Repeats

TOGETHER = {key: members for key, members in FAMILIES.items() if len(members) > 1}
ALONE = sorted({name for members in FAMILIES.values() if len(members) == 1 for name in members})
PACKED = [key for key, members in TOGETHER.items() if KERNELS[members[0]]["layout"] == "panel16"]
Floats = NDArray[np.float32]


def run(kernel: str, weight: Weight, x: Floats, **how: object) -> Floats:
    return core.gemm_run_kernel(kernel, weight.dtype, weight.file, weight.n, x, **how)


def assert_members_agree(members: list[str], weight: Weight, x: Floats) -> Floats:
    first, *others = (run(member, weight, x) for member in members)
    for other in others:
        assert_same_bits(other, first)
    return first


def test_det_7_every_family_has_a_member_to_equal() -> None:
    """On a CPU with AVX-512 VNNI every family has several members; a failure names those that have one."""
    if "avx512vnni" not in core.isas_here():
        pytest.skip("this CPU lacks AVX-512 VNNI: families have fewer members here")
    assert ALONE == []


@pytest.mark.few(2)
@pytest.mark.parametrize(("weight", "reduction"), PACKED)
def test_det_7_d07_gemm_11_members_agree_on_all_shapes(weight: str, reduction: str, repeats: Repeats) -> None:
    members = TOGETHER[weight, reduction]
    rng = np.random.default_rng(len(members))
    for n in range(1, 258, 257 // repeats(257)):
        # 257 values of n, with k from 1 to 257 where the type allows it, in random order.
        k = k_of(weight, 1 + n * 97 % 257)
        assert_members_agree(members, random_weight(weight, n, k), random_rows(int(rng.integers(1, 20)), k, seed=n))


@pytest.mark.few(11)
@pytest.mark.parametrize(("weight", "reduction"), [key for key in TOGETHER if key not in PACKED])
def test_d07_gemm_11_members_agree_on_types_that_are_decoded(weight: str, reduction: str) -> None:
    for n, blocks, m in [(1, 1, 1), (17, 3, 5), (31, 2, 13), (66, 5, 2)]:
        k = blocks * block_of(weight)[0]
        assert_members_agree(TOGETHER[weight, reduction], random_weight(weight, n, k), random_rows(m, k))


def extreme_rows(k: int) -> Floats:
    """Returns rows of huge, tiny, denormal, mixed and non-finite values, and zeros of both signs."""
    rng = np.random.default_rng(k)
    rows = random_rows(8, k)
    rows[0] *= np.float32(1e37)
    rows[1] *= np.float32(1e-38)
    rows[2] = rng.choice(np.float32([1e-44, -3e-39, 1.1754944e-38]), k)
    rows[3] *= np.exp(rng.normal(0, 20, k)).astype(np.float32)
    rows[4, 5] = np.inf
    rows[5, k // 2] = np.nan
    rows[6] = rng.choice(np.float32([0.0, -0.0]), k)
    rows[7, ::3] = np.finfo(np.float32).max
    return rows


@pytest.mark.few(20)
@pytest.mark.parametrize(("weight", "reduction"), list(TOGETHER))
def test_det_7_d07_members_agree_on_extreme_activations(weight: str, reduction: str) -> None:
    k = k_of(weight, 288)
    out = assert_members_agree(TOGETHER[weight, reduction], random_weight(weight, 37, k), extreme_rows(k))
    assert not np.isfinite(out[4]).any()  # an infinity and
    assert np.isnan(out[5]).all()  # a NaN among the activations reach every output
    assert (out[6] == 0).all()


@pytest.mark.parametrize(("weight", "reduction"), [key for key in PACKED if key[0] in ("f16", "bf16")])
def test_det_7_gemm_11_members_agree_on_many_rows(weight: str, reduction: str) -> None:
    """Some members decode weights once for many rows, in pieces of rows and of k that are whole and not."""
    members = TOGETHER[weight, reduction]
    for n, k, m in [(17, 191, 32), (49, 193, 63), (33, 577, 65), (16, 384, 130)]:
        few = assert_members_agree(members, random_weight(weight, n, k), random_rows(m, k)[:5])
        many = assert_members_agree(members, random_weight(weight, n, k), random_rows(m, k))
        assert_same_bits(many[:5], few)
    rows = np.tile(extreme_rows(288), (5, 1))
    out = assert_members_agree(members, random_weight(weight, 37, 288), rows)
    assert_same_bits(out, np.tile(out[:8], (5, 1)))


@pytest.mark.parametrize(("weight", "reduction"), [key for key in PACKED if key[0] in (*FLOAT_TYPES, "f8_e4m3")])
def test_det_7_gemm_11_members_agree_on_blocks_of_rows(weight: str, reduction: str) -> None:
    """Members take many rows in blocks, which end at other rows for other lengths."""
    members = TOGETHER[weight, reduction]
    for n, k, m in [(17, 1024, 300), (33, 1088, 257), (16, 3136, 129)]:
        matrix, x = random_weight(weight, n, k), random_rows(m, k)
        many = assert_members_agree(members, matrix, x)
        for first in (0, 99, 126, m - 5):
            assert_same_bits(many[first : first + 5], assert_members_agree(members, matrix, x[first : first + 5]))


# Zero and the smallest subnormal of both signs, the largest subnormal, the smallest normal, the largest, infinity.
SCALES = {"+0": 0x0000, "-0": 0x8000, "least": 0x0001, "subnormal": 0x83FF, "normal": 0x0400, "most": 0x7BFF}
INFINITE = 0x7C00


@pytest.mark.sweep
@pytest.mark.parametrize("weight", FLOAT16_SCALES)
@pytest.mark.parametrize("scale", [*SCALES, "infinity"])
def test_d08_extreme_block_scales_have_a_defined_product(weight: str, scale: str) -> None:
    k, n = k_of(weight, 256), 19
    blocks = random_weight(weight, n, k).file.reshape(-1, block_of(weight)[1]).copy()
    pattern = np.uint16(INFINITE if scale == "infinity" else SCALES[scale])
    for field in range(len(FLOAT16_SCALES[weight])):
        set_float16(weight, blocks[:: len(blocks) // n * 2], field, pattern)
    changed = Weight(weight, blocks.ravel(), decode(weight, blocks.ravel(), n, k))
    x = random_rows(6, k)
    for (name, _), members in TOGETHER.items():
        if name != weight:
            continue
        out = assert_members_agree(members, changed, x)
        # Rows with an infinite scale give infinity or NaN, all others a number.
        with np.errstate(all="ignore"):
            finite = np.isfinite(changed.values).all(axis=1)
        np.testing.assert_array_equal(np.isfinite(out), np.broadcast_to(finite, out.shape))


@pytest.mark.parametrize("weight", EXPONENTS)
def test_d08_extreme_block_exponents_have_a_defined_product(weight: str) -> None:
    """Each row has a different exponent: zero, the smallest, the largest finite ones, overflowing ones, NaN."""
    k, exponents = k_of(weight, 256), [0, 1, 2, 3, 127, 251, 252, 253, 254, 255]
    blocks = random_weight(weight, len(exponents), k).file.reshape(len(exponents), -1, block_of(weight)[1]).copy()
    blocks[:, ::2, EXPONENTS[weight]] = np.reshape(exponents, (-1, 1))
    changed = Weight(weight, blocks.ravel(), decode(weight, blocks.ravel(), len(exponents), k))
    x = random_rows(6, k) * np.float32(1e-3)
    for (name, reduction), members in TOGETHER.items():
        if name != weight:
            continue
        out = assert_members_agree(members, changed, x)
        finite = np.isfinite(out).all(axis=0)
        assert finite[: exponents.index(253)].all(), reduction
        assert not finite[-1], reduction


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "weight"), CASES)
def test_gemm_11_a_row_has_the_same_bits_in_any_company(kernel: str, weight: str) -> None:
    # Rows of weights for several tiles and a partial one; for floats, a k one larger than a run in the L2 cache.
    k = 1025 if weight in FLOAT_TYPES else k_of(weight, 544)
    matrix, x = random_weight(weight, 117, k), random_rows(40, k)
    together = run(kernel, matrix, x)
    for m in (1, 2, 3, 5, 6, 7, 12, 13, 25):
        assert_same_bits(run(kernel, matrix, x[-m:]), together[-m:])
        assert_same_bits(run(kernel, matrix, x[:m], cuts=[16 * (m % 3)] if m % 3 else []), together[:m])


@pytest.mark.few(13)
@pytest.mark.parametrize("weight", WEIGHT_TYPES)
def test_gemm_11_det_4_threads_change_no_bit(weight: str) -> None:
    k = k_of(weight, 288)
    matrix = random_weight(weight, 333, k)
    for m in (1, 9):
        x = random_rows(m, k)
        term = (weight, matrix.file, matrix.n, None)
        one, two, three = (core.gemm_linear([term], x, core.ThreadPool(n))[0][0] for n in (1, 2, 3))
        assert_same_bits(two, one)
        assert_same_bits(three, one)


def test_gemm_11_control_another_family_has_other_bits() -> None:
    weight, x = random_weight("q8_0", 48, 320), random_rows(5, 320)
    families = {KERNELS[name]["reduction"]: run(name, weight, x) for name, dtype in CASES if dtype == "q8_0"}
    if len(families) < 2:
        pytest.skip("this CPU has one family for q8_0")
    first, second = families.values()
    with pytest.raises(AssertionError):
        assert_same_bits(first, second)
