"""The commit that this imp was built from, and the devices that it was built for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from imp_service.core.device import CPU, CUDA
from imp_service.core.errors import Error
from imp_service.core.kernels import list_kernels


@cache
def revision() -> str:
    """The commit in hexadecimal; empty if it was not built from a checkout."""
    path = Path(__file__).parents[1] / "revision.txt"
    return path.read_text().strip() if path.exists() else ""


def backends() -> list[str]:
    """The devices that this build has kernels for."""
    return [device for device in (CPU, CUDA) if _is_built(device)]


def _is_built(device: str) -> bool:
    try:
        list_kernels(device)
    except Error:
        return False
    return True
