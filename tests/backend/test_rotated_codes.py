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


@pytest.mark.parametrize(
    ("dtype", "counts", "scale"),
    [
        ("rot4", [0, 2, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 2, 0], 0.1625977),
        ("rot3", [3, 5, 4, 4, 4, 4, 5, 3], 0.1256104),
        ("rot2", [8, 8, 8, 8], 0.1017456),
    ],
)
def test_kvq_3_codes_of_known_blocks(dtype: str, counts: list[int], scale: float) -> None:
    steps = np.arange(-15.5, 16, dtype=np.float32)[None]
    codes, scales = codes_of(steps, ROTATED[dtype])
    assert codes.ravel().tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
    assert scales.ravel() == np.float16(scale)
    codes, scales = codes_of(np.zeros((1, 32), np.float32), ROTATED[dtype])
    assert not codes.any()
    assert not scales.any()


@pytest.mark.parametrize("dtype", ["rot4", "rot3", "rot2"])
def test_kvq_3_a_block_keeps_its_product_with_itself(dtype: str) -> None:
    kind = ROTATED[dtype]
    x = np.random.default_rng(1).normal(size=(200, 128)).astype(np.float32)
    codes, scales = codes_of(x, kind)
    np.testing.assert_array_equal(codes_of(2 * x, kind)[0], codes)
    exact = (x.astype(np.float64) ** 2).reshape(-1, 4, 32).sum(axis=-1)
    found = (x * decoded(codes, scales, kind)).reshape(-1, 4, 32).sum(axis=-1)
    np.testing.assert_allclose(found, exact, rtol=tolerances.SCALE_ROUNDING)
    # Negative control: scales that keep the length instead.
    kept = (decoded(codes, scales, kind) ** 2).reshape(-1, 4, 32).sum(axis=-1)
    assert np.abs(found * np.sqrt(exact / kept) / exact - 1).max() > tolerances.SCALE_ROUNDING


@pytest.mark.parametrize(("dtype", "wanted"), [("rot4", 0.0064), ("rot3", 0.0273), ("rot2", 0.119)])
def test_kvq_4_the_distortion_of_gaussian_heads(dtype: str, wanted: float) -> None:
    gaussian = np.random.default_rng(3).normal(size=(4000, 128)).astype(np.float32)
    found = decoded(*codes_of(gaussian, ROTATED[dtype]), ROTATED[dtype])
    distortion = ((found - gaussian) ** 2).sum() / (gaussian.astype(np.float64) ** 2).sum()
    assert distortion == pytest.approx(wanted, rel=tolerances.DISTORTION)
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
