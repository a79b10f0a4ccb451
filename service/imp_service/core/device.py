"""Decides the device of a model and the placement of its memory, if the settings leave them to imp.

If the settings name a device or a placement, that one is used, or the start fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imp_service import _core
from imp_service.config import AUTO, Config
from imp_service.config.machine import resolve_threads
from imp_service.config.placement import resolve_cpus, resolve_memory
from imp_service.core.cublaslt import resolve_cublaslt

CPU = "cpu"
CUDA = "cuda"
NVIDIA_DRIVER = "proc/driver/nvidia/version"


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of this machine, and whether imp can use it."""

    name: str
    refusal: str  # why it cannot be used; empty if it can
    has_validated_kernels: bool

    @property
    def is_chosen(self) -> bool:
        """Whether `device.kind = "auto"` chooses it."""
        return not self.refusal and self.has_validated_kernels

    @property
    def text(self) -> str:
        """The name of the GPU, or why models run on the CPU."""
        if self.refusal:
            return self.refusal
        if not self.has_validated_kernels:
            return f"{self.name} is installed, but imp's kernels have not run on such hardware yet (docs/cuda.md)"
        return self.name


def processor_name() -> str:
    """The name of the CPU."""
    name: str = _core.processor_name()
    return name


def find_gpu() -> Gpu:
    """Asks the driver for the GPU. Without CUDA in this build there is none."""
    return Gpu(*_core.find_gpu())


def nvidia_driver(root: Path = Path("/")) -> str | None:
    """The version line of NVIDIA's driver; None on a machine without one."""
    try:
        text = (root / NVIDIA_DRIVER).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.partition("\n")[0].strip()


def resolve_device(config: Config) -> Config:
    """Settings with `device.kind` decided."""
    if config.settings.device.kind is not AUTO:
        return config
    gpu = find_gpu()
    return config.resolve(("device", "kind"), CUDA if gpu.is_chosen else CPU, gpu.text)


def place_memory(config: Config, root: Path = Path("/")) -> tuple[Config, tuple[int, ...]]:
    """Settings with `device.numa` decided, and the nodes that memory is spread over. `device.cpus` must be decided.

    Raises ConfigError if this machine does not support the setting.
    """
    return resolve_memory(config, _core.interleave_refusal, root)


def resolve_machine(config: Config) -> tuple[Config, tuple[int, ...]]:
    """Settings with everything in [device] decided, and the nodes that memory is spread over."""
    return place_memory(resolve_cpus(resolve_cublaslt(resolve_device(resolve_threads(config)))))
