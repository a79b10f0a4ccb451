"""Small work for every kernel, for tools that are slow: `python -m gpu_check.small_cases KIND [KERNEL …]`."""

from __future__ import annotations

import sys

from gpu_check.op_cases import OPS, Asked
from gpu_check.rows import TAIL, ListedKernel, cublaslt_places, depth_of, runnable_kernels, tests_support

N, K = 72, 512 + TAIL
ROWS = (1, 2, 3, 7, 17, 70)


def main(kind: str, only: tuple[str, ...]) -> None:
    """Those beside the list first: every model needs them."""
    for name, op in OPS.items():
        if not only or name in only:
            op.errors(Asked(kind, is_small=True))
            print(f"ran {name}", flush=True)
    for kernel in runnable_kernels(kind):
        if not only or kernel.name in only:
            multiply(kind, kernel)
            print(f"ran {kernel.name}", flush=True)


def multiply(kind: str, kernel: ListedKernel) -> None:
    from imp_service import _testing as core

    weights = tests_support("weights")
    k = depth_of(kernel.tested_weight, K)
    weight = weights.random_weight(kernel.tested_weight, N, k)
    for m in ROWS:
        if m <= kernel.max_rows:
            how = {"rows": weight.file, "x": weights.random_rows(m, k), "cublaslt": cublaslt_places(kind)}
            core.multiply_on_gpu(kind, kernel.name, weight.dtype, N, **how)


if __name__ == "__main__":
    main(sys.argv[1], tuple(sys.argv[2:]))
