"""Products over very long rows: all slices have their maximum length, and every tile counts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.kernels.devices import GPU_KINDS
from support.kernels.gpu_gemm import INTEGER_TYPES, TILE_TYPES, input_for, is_within, many_row_input, run
from support.kernels.gpu_gemm import many_row_product as product_of_many
from support.kernels.gpu_gemm import product as product_of_few
from support.kernels.weights import random_rows, random_weight

Floats = NDArray[np.float32]
K = 16384
N = 3

FEW = [*((f"{dtype}_dp4a", 4) for dtype in INTEGER_TYPES), *((f"{dtype}_imma", 5) for dtype in INTEGER_TYPES),
       ("f8_e4m3_mma", 3), ("f16_mma", 3), ("bf16_mma", 3)]  # fmt: skip
MANY = [(f"{dtype}_hmma", 5) for dtype in TILE_TYPES]


def one_of_each_tile(x: Floats) -> Floats:
    """Keeps one element of each tile, so that each adds more than the error bound; the rest is zero."""
    kept = np.zeros_like(x)
    places = np.arange(0, K, 256) + 37 * np.arange(K // 256) % 256
    kept[:, places] = x[:, places]
    return kept


@pytest.mark.long
@pytest.mark.parametrize("device", GPU_KINDS)
@pytest.mark.parametrize(("kernel", "m"), [*FEW, *MANY])
def test_gemm_10_rows_of_many_tiles_are_summed_to_their_end(device: str, kernel: str, m: int) -> None:
    dtype = kernel.rsplit("_", 1)[0]
    is_for_many = (kernel, m) in MANY
    make, product = (many_row_input, product_of_many) if is_for_many else (input_for, product_of_few)
    dense, weight = random_rows(m, K, seed=9), random_weight(dtype, N, K)
    for x in (make(dtype, dense), make(dtype, one_of_each_tile(dense))):
        [out] = run(device, kernel, [(weight.file, N, None)], x, K)
        exact, bound = product(x.exact, weight)
        assert is_within(out, exact, bound)
    # Negative controls: the check detects any eight missing tiles.
    for begin in range(0, K, 8 * 256):
        shorter = x.exact.copy()
        shorter[:, begin : begin + 8 * 256] = 0
        assert not is_within(out, shorter @ weight.values.T.astype(np.float64), bound)
