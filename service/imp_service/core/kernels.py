"""The matrix kernels there are, and why one of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imp_service import _core
from imp_service.core.tuning import Preference


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row of the kernel list, which is in order of preference."""

    name: str
    weight: str  # a weight type, or "any"
    layout: str
    reduction: str  # kernels of one reduction give equal bits
    validated: bool  # has run on the hardware it is for


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that could multiply a weight: whether it will, and why or why not."""

    kernel: str
    accepted: bool
    reason: str


def list_kernels() -> list[Kernel]:
    """Every kernel, in order of preference."""
    return [Kernel(**row) for row in _core.kernels()]


def explain(weight: str, n: int, k: int, isa: str = "auto", tuning: Sequence[Preference] = ()) -> list[Candidate]:
    """Each kernel that could multiply an n × k weight. Raises FIELD_INVALID for an unknown type or instruction set."""
    return [Candidate(*row) for row in _core.explain(weight, n, k, isa=isa, tuning=list(tuning))]


def best_isa() -> str:
    """The best instruction set of this machine."""
    isa: str = _core.best_isa()
    return isa


def known_isas() -> list[str]:
    """The words for instruction sets, least first."""
    isas: list[str] = _core.known_isas()
    return isas
