"""Runs small cases of every kernel, for slow tools: `python -m gpu_check.small_cases KIND [KERNEL …]`."""

from __future__ import annotations

import sys

import numpy as np

from gpu_check.op_cases import OPS, Asked
from gpu_check.rows import TAIL, ListedKernel, cublaslt_places, depth_of, runnable_kernels, tests_support

N, K = 72, 512 + TAIL
ROWS = (1, 2, 3, 7, 17, 70)


def main(kind: str, only: tuple[str, ...]) -> None:
    """Runs the kernels outside the list first, because every model needs them."""
    for name, op in OPS.items():
        if not only or name in only:
            op.errors(Asked(kind, is_small=True))
            print(f"ran {name}", flush=True)
    for kernel in runnable_kernels(kind):
        if not only or kernel.name in only:
            multiply(kind, kernel)
            print(f"ran {kernel.name}", flush=True)


def multiply(kind: str, kernel: ListedKernel) -> None:
    """Multiplies several numbers of rows; with tile kernels also a gated pair, and rows of experts."""
    from imp_service import _testing as core

    weights = tests_support("kernels.weights")
    k = depth_of(kernel.tested_weight, K)
    weight = weights.random_weight(kernel.tested_weight, N, k)
    for m in ROWS:
        if m <= kernel.max_rows:
            how = {"rows": weight.file, "x": weights.random_rows(m, k), "cublaslt": cublaslt_places(kind)}
            core.multiply_on_gpu(kind, kernel.name, weight.dtype, N, **how)
    if kernel.layout == "tile16" and kernel.reduction != "library":
        multiply_fused(kind, kernel, k)


def multiply_fused(kind: str, kernel: ListedKernel, k: int) -> None:
    gemm, weights = tests_support("kernels.gpu_gemm"), tests_support("kernels.weights")
    is_for_many = kernel.reduction == "float_steps"
    make = gemm.many_row_input if is_for_many else gemm.input_for
    x = make(kernel.weight, weights.random_rows(3, k))
    files = [weights.random_weight(kernel.weight, N, k, seed=i).file for i in range(3)]
    gemm.run(kind, kernel.name, [(file, N, None) for file in files[:2]], x, k, fusion="silu")
    begins, sources = np.array([0, 2, 2, 4], np.int32), np.array([2, 0, 1, 1], np.int32)
    gemm.run(kind, kernel.name, [(files, N, None)], x, k, m=4, begins=begins, sources=sources)


if __name__ == "__main__":
    main(sys.argv[1], tuple(sys.argv[2:]))
