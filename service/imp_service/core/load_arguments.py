"""What loading a model and planning it are told alike, from resolved settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from imp_service.config import Settings
from imp_service.config.host import MemoryLimit
from imp_service.core.cublaslt import cublaslt_places
from imp_service.core.isa import isa_setting
from imp_service.core.reserve import reserve_bytes
from imp_service.core.tuning import Preference


def load_arguments(settings: Settings, limit: MemoryLimit, tuning: Sequence[Preference]) -> dict[str, Any]:
    """Arguments of `_core.Model.load` and `_core.plan_model`."""
    device, scheduler, kv = settings.device, settings.scheduler, settings.kv
    assert isinstance(device.threads, int)  # narrows: it was resolved
    return {
        "device": str(device.kind),
        "isa": isa_setting(settings),
        "threads": device.threads,
        "tuning": list(tuning),
        "cublaslt": cublaslt_places(device.cublaslt, device.kind),
        "max_rows": max(scheduler.step_tokens, scheduler.max_running),
        "max_logits_rows": max(64, scheduler.max_running),
        "memory_bytes": limit.limit_bytes,
        "reserve_bytes": reserve_bytes(settings),
        "kv_block_tokens": kv.block_tokens,
        "kv_bytes": kv.bytes if isinstance(kv.bytes, int) else None,
    }
