"""The bench of GPU kernels runs them as a step does: correct results, and a time for every case."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_check.row_errors import worst_row
from gpu_check.rows import ListedKernel, cublaslt_places, runnable_kernels
from imp_service import _testing as core
from support.kernels.devices import GPU_KINDS
from support.kernels.weights import random_rows, random_weight

N, K = 40, 256
KERNELS = runnable_kernels(GPU_KINDS[0])
CASES = [(kind, kernel) for kind in GPU_KINDS for kernel in runnable_kernels(kind)]

each_kind = pytest.mark.parametrize("kind", GPU_KINDS)


@pytest.mark.few(15)
@pytest.mark.parametrize(("kind", "kernel"), CASES, ids=lambda value: getattr(value, "name", value))
def test_gemm_10_a_product_by_itself_is_near_float64(kind: str, kernel: ListedKernel) -> None:
    weight, x = random_weight(kernel.tested_weight, N, K), random_rows(2, K)
    out = core.multiply_on_gpu(
        kind, kernel.name, weight.dtype, N, rows=weight.file, x=x, cublaslt=cublaslt_places(kind)
    )
    wide_x, values = x.astype(np.float64), weight.values.astype(np.float64)
    assert worst_row(kernel, out, wide_x, values) < 1
    # Negative controls: another row's output, exchanged elements of the weight, an unwritten output.
    assert worst_row(kernel, out[::-1], wide_x, values) > 10
    assert worst_row(kernel, out, wide_x, np.roll(values, 1, axis=1)) > 10
    assert worst_row(kernel, np.where(out == out[0, 0], np.nan, out), wide_x, values) == np.inf


@each_kind
def test_a_weight_is_made_of_the_rows_that_are_given(kind: str) -> None:
    kernel = KERNELS[0]
    weight, x = random_weight(kernel.tested_weight, 16, K), random_rows(1, K)
    out = core.multiply_on_gpu(kind, kernel.name, weight.dtype, 48, rows=weight.file, x=x)
    np.testing.assert_array_equal(out[:, :16], out[:, 32:])


@each_kind
def test_every_case_has_its_times(kind: str) -> None:
    kernel = next(kernel for kernel in KERNELS if kernel.max_rows < 64)
    weight, x = random_weight(kernel.tested_weight, 16, K), random_rows(2, K)
    cases = [(kernel.name, 1), (kernel.name, kernel.max_rows + 1), (kernel.name, 2)]
    one, refused, two = core.bench_gpu_products(
        kind, weight.dtype, N, rows=weight.file, x=x, cases=cases, walk_bytes=1 << 16, seconds=0.0
    )
    assert len(one) == len(two) == 3
    assert min(one + two) > 0
    assert refused == []


@each_kind
@pytest.mark.parametrize(("sequences", "rows", "tokens"), [(3, 1, 20), (1, 9, 9)])
def test_attention_has_its_times(kind: str, sequences: int, rows: int, tokens: int) -> None:
    seconds = core.bench_gpu_attention(
        kind, n_heads=4, n_kv_heads=2, head_dim=64, sequences=sequences, rows=rows, tokens=tokens, layers=2, seconds=0.0
    )
    assert len(seconds) == 3
    assert min(seconds) > 0


@each_kind
def test_what_does_not_fit_is_refused(kind: str) -> None:
    kernel = next(kernel for kernel in KERNELS if kernel.max_rows < 64)
    weight = random_weight(kernel.tested_weight, 16, K)
    with pytest.raises(ValueError, match="no kernel nothing"):
        core.multiply_on_gpu(kind, "nothing", weight.dtype, N, rows=weight.file, x=random_rows(1, K))
    with pytest.raises(ValueError, match="refuses"):
        core.multiply_on_gpu(kind, kernel.name, weight.dtype, N, rows=weight.file, x=random_rows(64, K))
    with pytest.raises(ValueError, match="not rows"):
        core.multiply_on_gpu(kind, kernel.name, weight.dtype, N, rows=weight.file[:-1], x=random_rows(1, K))
