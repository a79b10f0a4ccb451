"""The rows of the kernel list as imp reports them, and test inputs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from gpu_check.context import ROOT, StageError

# Errors relative to the terms of a sum: of float32 and float16 inputs, and of those rounded to bfloat16.
FLOAT_BOUND, BFLOAT16_BOUND = 1e-3, 2.0**-8
ANY_ROWS = 1 << 30
LIBRARY_ROWS = 64
# The type with which kernels for any type are checked.
OF_ANY_TYPE = "q4_1"


# The test files that cover all shapes and edges of kernels, by the last word of the kernels' names.
_TILES = ("backend/cuda/test_tile_kernels.py", "backend/cuda/test_wide_products.py")
TESTS = {
    "dp4a": _TILES,
    "imma": _TILES,
    "mma": _TILES,
    "hmma": ("backend/cuda/test_many_row_kernels.py",),
    "wgmma": ("backend/cuda/test_many_row_kernels.py",),
    "cublaslt": ("backend/cuda/test_cublaslt.py",),
    "reference": ("backend/cuda/test_reference.py",),
}


# Columns beyond the last whole tile of 256, if the block size of a type allows it.
TAIL = 64


@dataclass(frozen=True)
class ListedKernel:
    """One row of the kernel list."""

    name: str
    weight: str  # "any" for kernels that use a type's decoder
    layout: str
    reduction: str
    max_rows: int
    refusal: str | None = None  # why this device cannot run it

    @property
    def tested_weight(self) -> str:
        return OF_ANY_TYPE if self.weight == "any" else self.weight

    @property
    def quantizes(self) -> bool:
        """Whether its input is int8."""
        return self.reduction.startswith("q8")

    @property
    def timed_rows(self) -> int:
        """The fewest rows worth timing: a library's products first decode the weight to memory."""
        return LIBRARY_ROWS if self.reduction == "library" else 1

    @property
    def bound(self) -> float:
        """The error bound of kernels that do not quantize."""
        return BFLOAT16_BOUND if self.weight == "bf16" else FLOAT_BOUND


def listed_kernels(kind: str) -> list[ListedKernel]:
    """Returns all rows in the order of the list."""
    from imp_service import _core
    from imp_service import _testing as core

    here = core.gpu_kernels_here(kind, cublaslt_places(kind))
    found = []
    for row in _core.kernels(kind):
        max_rows, refusal = here[row["name"]]
        found.append(
            ListedKernel(row["name"], row["weight"], row["layout"], row["reduction"], max_rows or ANY_ROWS, refusal)
        )
    return found


def runnable_kernels(kind: str) -> list[ListedKernel]:
    """Returns the rows that this device can run."""
    return [kernel for kernel in listed_kernels(kind) if kernel.refusal is None]


def cublaslt_places(kind: str) -> list[str]:
    """Returns the places of the library that some rows call; the first that exists counts."""
    found: list[str] = tests_support("kernels.cublaslt").places(kind)
    return found


def tests_support(name: str) -> ModuleType:
    """Imports a module of tests/support, so that the check uses the inputs of the tests."""
    folder = str(ROOT / "tests")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(f"support.{name}")
    except ModuleNotFoundError as error:
        raise StageError(f"support.{name}: {error}; --wheels names a folder of what the machine lacks") from error


def depth_of(weight: str, k: int) -> int:
    """Returns the largest multiple of the block size that is at most k."""
    elements, _ = tests_support("kernels.weights").block_of(weight)
    return int(k - k % elements)
