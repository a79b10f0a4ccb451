"""Which device a model runs on where the settings leave it to imp. What they name is taken, or the start fails."""

from __future__ import annotations

from imp_service.config import AUTO, Config

CPU = "cpu"


def resolve_device(config: Config) -> Config:
    """Settings with `device.kind` decided, where it is auto."""
    if config.settings.device.kind is not AUTO:
        return config
    return config.resolve(("device", "kind"), CPU, "imp computes on the CPU: its CUDA backend is not built yet")
