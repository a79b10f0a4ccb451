"""How far kernels are from float64: `python -m gpu_check.row_errors KIND all|dry KERNEL …` prints JSON, a line each."""

from __future__ import annotations

import json
import os
import sys

import numpy as np

from gpu_check.rows import ListedKernel, listed_kernels, tests_support

# Rows of x, by the phase that they are of.
CLASSES = {"decode": (1, 2, 4), "batch": (5, 8, 17, 33), "prefill": (64, 129, 513)}
DRY_CLASSES = {"decode": (1,), "batch": (5,)}
# n and k: whole tiles; ends of strips and of tiles.
SHAPES = ((256, 1024), (136, 1280), (1000, 512))
DRY_SHAPES = ((40, 256),)


def main(kind: str, extent: str, names: list[str]) -> None:
    is_dry = extent == "dry"
    for kernel in listed_kernels(kind):
        if kernel.name in names:
            row = {"kernel": kernel.name, "bound": kernel.bound}
            try:
                worst = worst_errors(kind, kernel, is_dry=is_dry)
                row |= {"passed": all(error <= 1 for error in worst.values()), "worst": worst}
            except Exception as error:
                row |= {"passed": False, "why": f"{type(error).__name__}: {error}"}
            print(json.dumps(row), flush=True)


def worst_errors(kind: str, kernel: ListedKernel, *, is_dry: bool) -> dict[str, float]:
    """By class of rows: ‖out − ref‖ / ‖ref‖ of the worst output row, as a part of what is allowed."""
    classes, shapes = (DRY_CLASSES, DRY_SHAPES) if is_dry else (CLASSES, SHAPES)
    worst = {}
    for name, sizes in classes.items():
        errors = [error_of(kind, kernel, n, k, m) for n, k in shapes for m in sizes if m <= kernel.max_rows]
        if errors:
            worst[name] = max(errors) / kernel.bound
    return worst


def error_of(kind: str, kernel: ListedKernel, n: int, k: int, m: int) -> float:
    """Fresh numbers each time; twice, for equal bits. What was not written is not a number, and never passes."""
    from imp_service import _testing as core

    weights = tests_support("weights")
    seed = int.from_bytes(os.urandom(4))
    weight, x = weights.random_weight(kernel.tested_weight, n, k, seed), weights.random_rows(m, k, seed)
    outputs = [core.multiply_on_gpu(kind, kernel.name, weight.dtype, n, rows=weight.file, x=x) for _ in range(2)]
    if outputs[0].tobytes() != outputs[1].tobytes():
        raise ArithmeticError(f"other bits in a second run: n {n}, k {k}, m {m}, seed {seed}")
    reference = x.astype(np.float64) @ weight.values.astype(np.float64).T
    errors = np.linalg.norm(outputs[0] - reference, axis=1) / np.linalg.norm(reference, axis=1)
    return float(np.nan_to_num(errors, nan=np.inf).max())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
