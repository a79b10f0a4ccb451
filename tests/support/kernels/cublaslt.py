"""The path of cuBLASLt for a kind of device: a substitute for the emulated GPU, NVIDIA's library for a real one."""

from __future__ import annotations

from pathlib import Path

from imp_service import _testing
from imp_service.core.cublaslt import search_places

EMULATED = str(Path(str(_testing.__file__)).parent / "libemulated_cublaslt.so")


def places(kind: str) -> list[str]:
    """Returns the places that devices and kernels search."""
    return search_places() if kind == "cuda" else [EMULATED]
