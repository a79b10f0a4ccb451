"""Rows of a table on the GPU: of every type, from the file's layout and from that of its kernels."""

from __future__ import annotations

import numpy as np
import pytest

from backend.gemm_families import k_of
from imp_service import _testing as core
from support.bits import assert_same_bits
from support.devices import GPUS
from support.weights import WEIGHT_TYPES, random_weight

each_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda device: device.name.replace(" ", "_"))


@pytest.mark.sweep
@each_gpu
@pytest.mark.parametrize("as_the_file", [True, False])
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_krn_3_rows_of_every_type_are_decoded(gpu: core.Device, dtype: str, as_the_file: bool) -> None:
    """Uses more tiles than a block has warps, with a partial last tile if the type allows it."""
    n, k = 37, k_of(dtype, 9 * 256 + 40)
    table = random_weight(dtype, n, k)
    tokens = np.array([36, 0, 17, 15, 16, 17], np.int32)
    overrides = [("w", "reference")] if as_the_file else []
    actual = gpu.embed(tokens, dtype, table.file, n, k, 0.75, overrides)
    assert_same_bits(actual, table.values[tokens] * np.float32(0.75))
    assert (actual != table.values[np.roll(tokens, 1)] * np.float32(0.75)).mean() > 0.5


@each_gpu
def test_krn_3_odd_rows_of_floats_are_read(gpu: core.Device) -> None:
    for dtype in ("f32", "f16", "bf16"):
        table = random_weight(dtype, 5, 301)
        for overrides in ([], [("w", "reference")]):
            actual = gpu.embed(np.array([4, 1], np.int32), dtype, table.file, 5, 301, 1.0, overrides)
            assert_same_bits(actual, table.values[[4, 1]])
