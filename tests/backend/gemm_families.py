"""The CPU's kernels for parametrized tests, from the kernel list itself, so that tests include every new kernel."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from imp_service import _testing as core
from support.kernels.weights import WEIGHT_TYPES, block_of
from support.oracles import tolerances

HERE = core.cpu_caps("auto")
# With those that only tests can run.
KERNELS: dict[str, dict[str, Any]] = {row["name"]: row for row in [*core.gemm_kernels(), *core.gemm_test_kernels()]}
QUANTIZING = "q8_block32"
# The error bound of a product by format of activations.
BOUNDS = {
    "f32": tolerances.sum_of_products,
    "bf16": tolerances.bfloat16_activations,
    "q8_block32": tolerances.int8_activations,
}


def fits_here(kernel: str, weight: str) -> bool:
    return core.gemm_refusal(kernel, HERE, weight, 16, block_of(weight)[0] * 32) is None


# Every kernel with every type that it multiplies on this machine.
CASES = [
    (name, weight)
    for name, row in KERNELS.items()
    for weight in WEIGHT_TYPES
    if row["weight"] in ("any", weight) and fits_here(name, weight)
]

# The types that have kernels of their own; other types are decoded during the product.
PANEL_TYPES = [dtype for dtype in WEIGHT_TYPES if any(row["weight"] == dtype for row in KERNELS.values())]

# The members of each family (kernels with the same order of sums) for each type; a single member has no equal.
FAMILIES: dict[tuple[str, str], list[str]] = defaultdict(list)
for name, weight in CASES:
    FAMILIES[weight, KERNELS[name]["reduction"]].append(name)


def k_of(weight: str, at_least: int) -> int:
    """Returns a k of whole blocks."""
    block = block_of(weight)[0]
    return -(-at_least // block) * block
