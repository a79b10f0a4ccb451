"""Values that follow from several settings."""

from __future__ import annotations

from imp_service.config.settings import LimitsSettings, Settings, TextSettings

_LOSSY_KV = ("q8_0",)


def approximations(settings: Settings) -> str:
    """The lossy features that affect every reply under these settings, comma-separated; empty if there are none."""
    kv_dtype = settings.model.overrides.kv_dtype or settings.kv.dtype
    return f"kv={kv_dtype}" if kv_dtype in _LOSSY_KV else ""


# The worker process that compiles each constraint first: Python and the grammar library.
WORKER_BYTES = 21 * 1024**2


def constraint_bytes(text: TextSettings) -> int:
    """Memory of constraints: the cache, one that the worker compiles, and one that the server compiles."""
    return text.cache_bytes + 2 * text.compile_bytes + WORKER_BYTES


MOST_MARGIN_BYTES = 4 * 1024**2


def most_received_bytes(limits: LimitsSettings) -> int:
    """Twice `limits.max_message_bytes`, but no more than 4 MiB above it."""
    return limits.max_message_bytes + min(limits.max_message_bytes, MOST_MARGIN_BYTES)
