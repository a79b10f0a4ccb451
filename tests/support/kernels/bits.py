"""Compares floats by their bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def assert_same_bits(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Asserts equal bits. All NaNs count as equal, because instructions produce different ones."""
    assert actual.shape == expected.shape
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])
