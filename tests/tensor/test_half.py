"""Conversions between float and the 16-bit floats, over every 16-bit pattern and around every rounding boundary."""

from __future__ import annotations

import numpy as np

from imp_service import _testing as core

ALL = np.arange(2**16, dtype=np.uint32).astype(np.uint16)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray, nan: np.ndarray) -> None:
    np.testing.assert_array_equal(actual[~nan], expected[~nan])


def around(values: np.ndarray) -> np.ndarray:
    """Returns the finite values, their midpoints (ties) and the floats next to both."""
    finite = np.sort(np.unique(values[np.isfinite(values)]).astype(np.float64))
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2]).astype(np.float32)
    above = np.nextafter(points, np.float32(np.inf))
    below = np.nextafter(points, np.float32(-np.inf))
    return np.concatenate([points, above, below])


def test_mod_3_f16_widens_exactly() -> None:
    expected = ALL.view(np.float16).astype(np.float32)
    actual = core.f16_to_f32(ALL)
    assert_same_bits(actual.view(np.uint32), expected.view(np.uint32), np.isnan(expected))
    assert np.isnan(actual[np.isnan(expected)]).all()


def test_mod_3_f16_round_trip_and_ties_to_even() -> None:
    values = around(ALL.view(np.float16).astype(np.float32))
    # 65520 is the tie between the largest f16 and infinity.
    edges = [65519.996, 65520.0, 65536.0, 1e6, 3e38, np.inf, 2.0**-25, 2.0**-26, 1e-40, 0.0]
    values = np.concatenate([values, np.float32(edges), -np.float32(edges)])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(core.f32_to_f16(values), expected)
    nans = np.array([0x7F800001, 0xFF800001, 0x7FC12345], np.uint32).view(np.float32)
    assert np.isnan(core.f32_to_f16(nans).view(np.float16)).all()


def test_mod_3_bf16_widens_exactly() -> None:
    np.testing.assert_array_equal(core.bf16_to_f32(ALL).view(np.uint32), ALL.astype(np.uint32) << 16)


def test_mod_3_bf16_round_trip_and_ties_to_even() -> None:
    widened = (ALL.astype(np.uint32) << 16).view(np.float32)
    values = around(widened)
    bits = values.view(np.uint32)
    # Rounds to the nearest neighbour, at a tie to the even one. Integer arithmetic on the bits is exact, because the
    # bits have the order of the numbers.
    low = bits >> 16
    rest = bits & 0xFFFF
    expected = low + ((rest > 0x8000) | ((rest == 0x8000) & (low % 2 == 1)))
    np.testing.assert_array_equal(core.f32_to_bf16(values), expected.astype(np.uint16))
    nans = np.array([0x7F800001, 0xFF800001, 0x7FC12345], np.uint32).view(np.float32)
    assert np.isnan((core.f32_to_bf16(nans).astype(np.uint32) << 16).view(np.float32)).all()
