"""Values that follow from several settings."""

from __future__ import annotations

from imp_service.config.settings import Limits, Settings, TextBounds

_LOSSY_KV = ("q8_0",)


def approximations(settings: Settings) -> str:
    """A comma-separated list, empty where nothing is approximated."""
    kv_dtype = settings.model.overrides.kv_dtype or settings.kv.dtype
    return f"kv={kv_dtype}" if kv_dtype in _LOSSY_KV else ""


# A process of its own tries each constraint out: Python and the grammar library, of which 11 MiB are its own.
WORKER_BYTES = 21 * 1024**2


def constraint_bytes(text: TextBounds) -> int:
    """Programs kept and in use, one that is being tried out in the worker, and the same being compiled here."""
    return text.cache_bytes + 2 * text.compile_bytes + WORKER_BYTES


MOST_MARGIN_BYTES = 4 * 1024**2


def most_received_bytes(limits: Limits) -> int:
    """Twice `limits.max_message_bytes`, but no more than 4 MiB above it."""
    return limits.max_message_bytes + min(limits.max_message_bytes, MOST_MARGIN_BYTES)
