"""Which kernels multiply a model's weights, a line for each distinct plan: what a start tells the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from imp_service.generation import ModelRuntime


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Weights of one type that the same kernels multiply."""

    dtype: str
    # By ascending number of rows.
    kernels: tuple[str, ...]
    n_tensors: int


def kernel_plans(model: ModelRuntime) -> list[KernelPlan]:
    """Every plan of the model, the one of most tensors first."""
    counts = Counter((weight["dtype"], tuple(weight["kernels"])) for weight in model.core.weights if weight["kernels"])
    return [KernelPlan(dtype, kernels, n) for (dtype, kernels), n in counts.most_common()]
