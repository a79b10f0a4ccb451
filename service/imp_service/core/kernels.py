"""Lists the kernels for matrix products, and explains which one runs for a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from imp_service import _core
from imp_service.config import AUTO
from imp_service.config.kinds import Auto
from imp_service.core.cublaslt import cublaslt_places, reason_for_auto
from imp_service.core.overrides import require_kernels
from imp_service.core.tuning_file import Preference


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row of the kernel list, which is in order of preference."""

    name: str
    weight: str  # a weight type, or "any"
    layout: str
    reduction: str  # kernels of one reduction give equal bits
    validated: bool  # has run on the hardware it is for


@dataclass(frozen=True, slots=True)
class KernelCandidate:
    """A kernel that could multiply a weight: whether it will, and why or why not."""

    kernel: str
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class KernelConditions:
    """The facts, in addition to the weight, that decide the choice of a kernel."""

    device: str = "cpu"
    isa: str = "auto"  # of a CPU
    gpu: str = "auto"  # of a GPU: this machine's (auto), h200 or a100
    cublaslt: str | Auto = AUTO  # where that library is, for this machine's GPU
    tuning: Sequence[Preference] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)  # weight type -> kernel
    deterministic: bool = False
    unvalidated_kernels: bool = False


def list_kernels(device: str = "cpu") -> list[Kernel]:
    """Every kernel of a device, in order of preference. Raises DEVICE_MISSING if imp was built without that device."""
    return [Kernel(**row) for row in _core.kernels(device)]


def explain(weight: str, n: int, k: int, choice: KernelConditions) -> list[KernelCandidate]:
    """Each kernel that could multiply an n × k weight.

    Raises FIELD_INVALID for an unknown word, OVERRIDE_INVALID if the override of the type is not possible.
    """
    named = choice.overrides.get(weight, "")
    require_kernels({weight: named} if named else {}, choice.device)
    rows = _core.explain(
        weight,
        n,
        k,
        device=choice.device,
        isa=choice.isa,
        gpu=choice.gpu,
        cublaslt=cublaslt_places(choice.cublaslt, choice.device),
        tuning=list(choice.tuning),
        deterministic=choice.deterministic,
        unvalidated=choice.unvalidated_kernels,
        kernel=named,
    )
    return [
        KernelCandidate(name, accepted, reason_for_auto(reason, choice.cublaslt, choice.device))
        for name, accepted, reason in rows
    ]


def weight_types() -> list[str]:
    """The types of weights that kernels multiply."""
    types: list[str] = _core.dtypes()
    return types
