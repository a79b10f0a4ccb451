"""Which device a model runs on, and where its memory lies, where the settings leave it to imp.

What they name is taken, or the start fails.
"""

from __future__ import annotations

from pathlib import Path

from imp_service import _core
from imp_service.config import AUTO, Config
from imp_service.config.host import resolve_threads
from imp_service.config.placement import resolve_cpus, resolve_memory

CPU = "cpu"


def resolve_device(config: Config) -> Config:
    """Settings with `device.kind` decided, where it is auto."""
    if config.settings.device.kind is not AUTO:
        return config
    return config.resolve(("device", "kind"), CPU, "imp computes on the CPU: its CUDA backend is not built yet")


def place_memory(config: Config, root: Path = Path("/")) -> tuple[Config, tuple[int, ...]]:
    """Settings with `device.numa` decided, and the nodes that memory is spread over; `device.cpus` is decided.

    Raises ConfigError where they ask for what this machine does not do.
    """
    return resolve_memory(config, _core.interleave_refusal, root)


def resolve_machine(config: Config) -> tuple[Config, tuple[int, ...]]:
    """Settings with all of [device] decided that this machine decides, and the nodes that memory is spread over."""
    return place_memory(resolve_cpus(resolve_device(resolve_threads(config))))
