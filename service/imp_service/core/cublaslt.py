"""The paths of cuBLASLt, NVIDIA's library of matrix products, which some GPU kernels call.

imp is not linked with the library. It opens the library only if a model uses such a kernel.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imp_service.config import AUTO, Config
from imp_service.config.kinds import Auto
from imp_service.config.tree import origin_at
from imp_service.core.errors import ModelError

OFF = "off"
# The core's reason if it gets an empty list of places.
_NOWHERE = "device.cublaslt is off"
_BETWEEN = ":"
# In the packages nvidia-cublas and nvidia-cublas-cu12, below the folder of their namespace.
_PACKAGED = ("cu13/lib/libcublasLt.so.13", "cublas/lib/libcublasLt.so.12")
_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")


def search_places() -> list[str]:
    """The places of `auto` on a GPU: the files of NVIDIA's installed Python packages, then names for the loader.

    A library of such a name that the process has loaded already comes first.
    """
    package = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (package.submodule_search_locations or ())] if package is not None else []
    files = [root / name for name in _PACKAGED for root in roots]
    return [*(str(file) for file in files if file.is_file()), *_NAMES]


def cublaslt_places(setting: str | Auto, kind: str | Auto) -> list[str]:
    """The paths at which the core looks for cuBLASLt; empty: the library is not used."""
    if setting is AUTO:
        return search_places() if kind == "cuda" else []
    return [] if setting == OFF else str(setting).split(_BETWEEN)


def resolve_cublaslt(config: Config) -> Config:
    """Settings with `device.cublaslt` decided. `device.kind` must be decided."""
    device = config.settings.device
    if device.cublaslt is not AUTO:
        return config
    places = cublaslt_places(AUTO, device.kind)
    reason = "its Python package, then the loader" if places else f"device.kind is {device.kind}"
    return config.resolve(("device", "cublaslt"), _BETWEEN.join(places) or OFF, reason)


def reason_for_auto(reason: str, setting: str | Auto, kind: str | Auto) -> str:
    """The core's reason about a kernel. If the user's setting is `auto`, the text says so, instead of `off`."""
    return (
        reason if setting is not AUTO else reason.replace(_NOWHERE, f"device.cublaslt is auto, and device.kind {kind}")
    )


@contextmanager
def naming_auto(config: Config) -> Iterator[None]:
    """Applies reason_for_auto() to a ModelError raised within the `with` block. `device.kind` must be decided."""
    device = config.settings.device
    was_auto = origin_at(config.tree, ("device", "cublaslt")).source == "auto"
    try:
        yield
    except ModelError as error:
        error.message = reason_for_auto(error.message, AUTO if was_auto else device.cublaslt, device.kind)
        error.args = (f"{error.reason}: {error.message}",)
        raise
