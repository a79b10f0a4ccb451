"""Which kernels multiply a model's weights, for the log of a start: a line for each distinct plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from imp_service.generation import ModelRuntime


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Weights of one type that the same kernels multiply."""

    dtype: str
    # For ascending numbers of rows.
    kernels: tuple[str, ...]
    n_tensors: int


def kernel_plans(model: ModelRuntime) -> list[KernelPlan]:
    """Every distinct plan of the model, the one with the most tensors first."""
    counts = Counter((weight["dtype"], tuple(weight["kernels"])) for weight in model.core.weights if weight["kernels"])
    return [KernelPlan(dtype, kernels, n) for (dtype, kernels), n in counts.most_common()]
