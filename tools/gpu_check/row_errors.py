"""Prints errors of kernels against float64, as JSON lines: `python -m gpu_check.row_errors KIND all|dry KERNEL …`."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
from numpy.typing import NDArray

from gpu_check.rows import TAIL, ListedKernel, cublaslt_places, depth_of, runnable_kernels, tests_support

Float64s = NDArray[np.float64]
Q8_ELEMENTS = 32
DEVIATIONS = 4  # how far an error may be from its expectation

# Numbers of rows of x, by phase.
CLASSES = {"decode": (1, 2, 4), "batch": (5, 8, 17, 33), "prefill": (64, 129, 513)}
DRY_CLASSES = {"decode": (1,), "batch": (5,)}
# n and k: whole tiles; partial strips; partial tiles too, with blocks beyond the last whole one.
SHAPES = ((256, 1024), (136, 1280), (1000, 512 + TAIL))
DRY_SHAPES = ((40, 256 + TAIL),)
# More rows of a weight and of x than a library's kernel multiplies in one call.
CUT = (16400, 512, 2049)


def main(kind: str, extent: str, names: list[str]) -> None:
    is_dry = extent == "dry"
    for kernel in runnable_kernels(kind):
        if kernel.name in names:
            row = {"kernel": kernel.name}
            try:
                worst = worst_errors(kind, kernel, is_dry=is_dry)
                row |= {"passed": all(error <= 1 for error in worst.values()), "worst": worst}
            except Exception as error:
                row |= {"passed": False, "why": f"{type(error).__name__}: {error}"}
            print(json.dumps(row), flush=True)


def worst_errors(kind: str, kernel: ListedKernel, *, is_dry: bool) -> dict[str, float]:
    """Returns the worst error of each class of rows, as a fraction of the bound."""
    classes, shapes = (DRY_CLASSES, DRY_SHAPES) if is_dry else (CLASSES, SHAPES)
    worst = {}
    for name, sizes in classes.items():
        errors = [error_of(kind, kernel, n, k, m) for n, k in shapes for m in sizes if m <= kernel.max_rows]
        if errors:
            worst[name] = max(errors)
    if not is_dry and kernel.name.endswith("_cublaslt"):
        worst["cut"] = error_of(kind, kernel, *CUT)
    return worst


def error_of(kind: str, kernel: ListedKernel, n: int, k: int, m: int) -> float:
    """Returns the error for new random inputs. Runs twice and compares bits. Unwritten outputs are NaN and fail."""
    from imp_service import _testing as core

    weights = tests_support("kernels.weights")
    k = depth_of(kernel.tested_weight, k)
    seed = int.from_bytes(os.urandom(4))
    weight, x = weights.random_weight(kernel.tested_weight, n, k, seed), weights.random_rows(m, k, seed)
    how = {"rows": weight.file, "x": x, "cublaslt": cublaslt_places(kind)}
    outputs = [core.multiply_on_gpu(kind, kernel.name, weight.dtype, n, **how) for _ in range(2)]
    if outputs[0].tobytes() != outputs[1].tobytes():
        raise ArithmeticError(f"other bits in a second run: n {n}, k {k}, m {m}, seed {seed}")
    return worst_row(kernel, outputs[0], x.astype(np.float64), weight.values.astype(np.float64))


def worst_row(kernel: ListedKernel, out: NDArray[np.float32], x: Float64s, weight: Float64s) -> float:
    """Returns ‖out − ref‖ of the worst row, as a fraction of the bound."""
    errors = np.linalg.norm(out - x @ weight.T, axis=1) / np.linalg.norm(allowed(kernel, x, weight), axis=1)
    return float(np.nan_to_num(errors, nan=np.inf).max())


def allowed(kernel: ListedKernel, x: Float64s, weight: Float64s) -> Float64s:
    """Returns the bound of each output. The errors of its terms are independent, so they add up as squares."""
    if not kernel.quantizes:
        return kernel.bound * np.sqrt(x**2 @ weight.T**2)
    # A rounding to int8 is uniform within half a step; a step is the largest of 32 elements divided by 127.
    steps = np.abs(x).reshape(len(x), -1, Q8_ELEMENTS).max(axis=2).repeat(Q8_ELEMENTS, axis=1) / 127
    return DEVIATIONS * np.sqrt((steps / 12**0.5) ** 2 @ weight.T**2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
