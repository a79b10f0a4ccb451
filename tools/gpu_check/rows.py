"""The rows of the kernel list, as the program has them, and numbers to multiply with."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from gpu_check.context import ROOT, StageError

# Relative to float64: float32 sums of exact weights; inputs rounded to float16 and to bfloat16; inputs as int8.
FLOAT_BOUND, BFLOAT16_BOUND, INT8_BOUND = 1e-3, 2.0**-8, 1.5e-2
ANY_ROWS = 1 << 30
# What kernels of any type are asked to multiply.
OF_ANY_TYPE = "q4_1"


@dataclass(frozen=True)
class ListedKernel:
    """One row."""

    name: str
    weight: str  # "any" for those that go through a type's decoder
    layout: str
    reduction: str
    max_rows: int

    @property
    def tested_weight(self) -> str:
        return OF_ANY_TYPE if self.weight == "any" else self.weight

    @property
    def bound(self) -> float:
        if self.reduction.startswith("q8"):
            return INT8_BOUND
        return BFLOAT16_BOUND if self.weight == "bf16" else FLOAT_BOUND


def listed_kernels(kind: str) -> list[ListedKernel]:
    """In the list's order."""
    from imp_service import _core
    from imp_service import _testing as core

    limits = core.gpu_kernel_rows(kind)
    return [
        ListedKernel(row["name"], row["weight"], row["layout"], row["reduction"], limits[row["name"]] or ANY_ROWS)
        for row in _core.kernels(kind)
    ]


def tests_support(name: str) -> ModuleType:
    """A module of tests/support: what the tests make, the check makes."""
    folder = str(ROOT / "tests")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(f"support.{name}")
    except ModuleNotFoundError as error:
        raise StageError(f"support.{name}: {error}; --wheels names a folder of what the machine lacks") from error
