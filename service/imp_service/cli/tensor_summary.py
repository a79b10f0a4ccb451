"""The tensors of a file, counted by type."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imp_service.core import TensorInfo


@dataclass(slots=True)
class TypeSummary:
    """All tensors of one type."""

    dtype: str
    n_tensors: int = 0
    n_elements: int = 0
    n_bytes: int = 0


def summarize(tensors: "Sequence[TensorInfo]") -> list[TypeSummary]:
    """One row for each type, that with the most elements first."""
    by_type: dict[str, TypeSummary] = {}
    for tensor in tensors:
        row = by_type.setdefault(tensor.dtype, TypeSummary(tensor.dtype))
        row.n_tensors += 1
        row.n_elements += tensor.n_elements
        row.n_bytes += tensor.n_bytes
    return sorted(by_type.values(), key=lambda row: -row.n_elements)
