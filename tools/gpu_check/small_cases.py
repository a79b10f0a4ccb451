"""Small work for every kernel, for tools that are slow: `python -m gpu_check.small_cases KIND [KERNEL …]`."""

from __future__ import annotations

import sys

from gpu_check.rows import TAIL, cublaslt_places, depth_of, runnable_kernels, tests_support

N, K = 72, 512 + TAIL
ROWS = (1, 3, 17, 70)


def main(kind: str, only: tuple[str, ...]) -> None:
    """Each kernel with a few rows; attention of few rows and of many."""
    from imp_service import _testing as core

    weights = tests_support("weights")
    for kernel in runnable_kernels(kind):
        if only and kernel.name not in only:
            continue
        k = depth_of(kernel.tested_weight, K)
        weight = weights.random_weight(kernel.tested_weight, N, k)
        for m in ROWS:
            if m <= kernel.max_rows:
                x = weights.random_rows(m, k)
                how = {"rows": weight.file, "x": x, "cublaslt": cublaslt_places(kind)}
                core.multiply_on_gpu(kind, kernel.name, weight.dtype, N, **how)
        print(f"ran {kernel.name}", flush=True)
    if not only:
        heads = {"n_heads": 8, "n_kv_heads": 2, "head_dim": 64, "layers": 2, "seconds": 0.0}
        core.bench_gpu_attention(kind, sequences=3, rows=1, tokens=40, **heads)
        core.bench_gpu_attention(kind, sequences=1, rows=40, tokens=40, **heads)
        print("ran attention", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], tuple(sys.argv[2:]))
