"""The oracle of the rotated cache types against published numbers; the cache equals the oracle (test_attention.py)."""

from __future__ import annotations

import numpy as np
import pytest

from support.oracles import tolerances
from support.oracles.rotation_oracle import ROTATED, codes_of, decoded, group_of, rotate, signs, splitmix64

Array = np.ndarray
ROT4 = ROTATED["rot4"]


def bits_of(values: Array) -> str:
    return np.packbits(values < 0, bitorder="little").tobytes().hex()


def test_kvq_2_the_signs_come_from_splitmix64() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert bits_of(signs(1, 128)) == "dbf4c01dfb8a14b865aeaecb56e40347"
    assert bits_of(signs(2, 128)) == "58472e6f2a6aa58932b1af3b07f8f289"


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 192, 256])
def test_kvq_2_a_rotation_keeps_products_and_can_be_reversed(head_dim: int) -> None:
    q, k = np.random.default_rng(head_dim).normal(size=(2, 50, head_dim))
    turned = rotate(q, head_dim)
    np.testing.assert_allclose(rotate(turned, head_dim, back=True), q, atol=tolerances.ROTATION_BACK)
    products = (q * k).sum(axis=1)
    np.testing.assert_allclose((turned * rotate(k, head_dim)).sum(axis=1), products, atol=tolerances.ROTATION_BACK)
    # Negative control: one sign differs.
    turned[:, 0] *= -1
    assert np.abs((turned * rotate(k, head_dim)).sum(axis=1) - products).max() > 1e-2


@pytest.mark.parametrize(("head_dim", "group"), [(32, 32), (64, 64), (96, 32), (128, 128), (192, 64), (256, 128)])
def test_kvq_2_a_group_is_the_greatest_power_of_two_that_divides_a_head(head_dim: int, group: int) -> None:
    assert group_of(head_dim) == group


def test_kvq_3_codes_of_known_blocks() -> None:
    steps = np.arange(-15.5, 16, dtype=np.float32)[None]
    codes, scales = codes_of(steps, ROT4)
    wanted = "1 1 2 2 2 3 3 3 4 4 5 5 6 6 7 7 8 8 9 9 10 10 11 11 12 12 12 13 13 13 14 14"
    assert codes.ravel().tolist() == [int(word) for word in wanted.split()]
    assert scales.ravel() == np.float16(0.1625977)
    codes, scales = codes_of(np.zeros((1, 32), np.float32), ROT4)
    assert not codes.any()
    assert not scales.any()


def test_kvq_3_a_block_keeps_its_product_with_itself() -> None:
    x = np.random.default_rng(1).normal(size=(200, 128)).astype(np.float32)
    codes, scales = codes_of(x, ROT4)
    np.testing.assert_array_equal(codes_of(2 * x, ROT4)[0], codes)
    exact = (x.astype(np.float64) ** 2).reshape(-1, 4, 32).sum(axis=-1)
    found = (x * decoded(codes, scales, ROT4)).reshape(-1, 4, 32).sum(axis=-1)
    np.testing.assert_allclose(found, exact, rtol=tolerances.SCALE_ROUNDING)
    # Negative control: scales that keep the length instead.
    kept = (decoded(codes, scales, ROT4) ** 2).reshape(-1, 4, 32).sum(axis=-1)
    assert np.abs(found * np.sqrt(exact / kept) / exact - 1).max() > tolerances.SCALE_ROUNDING


def test_kvq_4_the_distortion_of_gaussian_heads() -> None:
    gaussian = np.random.default_rng(3).normal(size=(4000, 128)).astype(np.float32)
    found = decoded(*codes_of(gaussian, ROT4), ROT4)
    distortion = ((found - gaussian) ** 2).sum() / (gaussian.astype(np.float64) ** 2).sum()
    assert distortion == pytest.approx(0.0064, rel=tolerances.DISTORTION)
    slope = (gaussian * found).sum() / (gaussian.astype(np.float64) ** 2).sum()
    assert slope == pytest.approx(1, abs=tolerances.SLOPE)


def test_kvq_4_rotation_makes_an_outlier_harmless() -> None:
    x = np.random.default_rng(2).normal(size=(4000, 128)).astype(np.float32)
    x[:, 7] *= 20
    share = {}
    for name, rows in (("rotated", rotate(x, 128)), ("plain", x)):
        found = decoded(*codes_of(rows, ROT4), ROT4)
        share[name] = ((found - rows) ** 2).sum() / (rows.astype(np.float64) ** 2).sum()
    assert share["rotated"] < 0.0064 * (1 + tolerances.DISTORTION) < share["plain"] / 3
