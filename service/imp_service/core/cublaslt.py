"""Where cuBLASLt may be: NVIDIA's matrix products, which some kernels of a GPU call where they are at hand.

The library is never linked. It is opened when a model's settings name such a kernel, and not before.
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
# What the core says where it is given no place.
_NOWHERE = "device.cublaslt is off"
_BETWEEN = ":"
# Of the packages nvidia-cublas and nvidia-cublas-cu12, below their namespace.
_PACKAGED = ("cu13/lib/libcublasLt.so.13", "cublas/lib/libcublasLt.so.12")
_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")


def search_places() -> list[str]:
    """What `auto` means on a GPU: the files of NVIDIA's Python packages that are here, then the loader's names.

    A library of such a name that the process has loaded already comes before all of them.
    """
    package = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (package.submodule_search_locations or ())] if package is not None else []
    files = [root / name for name in _PACKAGED for root in roots]
    return [*(str(file) for file in files if file.is_file()), *_NAMES]


def cublaslt_places(setting: str | Auto, kind: str | Auto) -> list[str]:
    """As the core takes them, for a device of some kind; none: it is not to be used."""
    if setting is AUTO:
        return search_places() if kind == "cuda" else []
    return [] if setting == OFF else str(setting).split(_BETWEEN)


def resolve_cublaslt(config: Config) -> Config:
    """Settings with `device.cublaslt` decided; `device.kind` is."""
    device = config.settings.device
    if device.cublaslt is not AUTO:
        return config
    places = cublaslt_places(AUTO, device.kind)
    reason = "its Python package, then the loader" if places else f"device.kind is {device.kind}"
    return config.resolve(("device", "cublaslt"), _BETWEEN.join(places) or OFF, reason)


def why_nowhere(reason: str, setting: str | Auto, kind: str | Auto) -> str:
    """The core's reason for a kernel, in which `auto` is called by its name."""
    return (
        reason if setting is not AUTO else reason.replace(_NOWHERE, f"device.cublaslt is auto, and device.kind {kind}")
    )


@contextmanager
def auto_by_its_name(config: Config) -> Iterator[None]:
    """The same of a model that is refused; `device.kind` is decided."""
    device = config.settings.device
    was_auto = origin_at(config.tree, ("device", "cublaslt")).source == "auto"
    try:
        yield
    except ModelError as error:
        error.message = why_nowhere(error.message, AUTO if was_auto else device.cublaslt, device.kind)
        error.args = (f"{error.reason}: {error.message}",)
        raise
