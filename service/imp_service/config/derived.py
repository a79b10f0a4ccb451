"""Values that follow from several settings."""

from __future__ import annotations

from imp_service.config.kinds import AUTO, Auto
from imp_service.config.settings import LimitsSettings, Settings, TextSettings
from imp_service.tables import KV_TYPES, KvType


def approximations(settings: Settings) -> str:
    """The lossy features that affect every reply under these settings, comma-separated; empty if there are none."""
    return f"kv={cache_words(settings)}" if any(kind.is_quantized for kind in cache_types(settings)) else ""


def cache_words(settings: Settings) -> str | Auto:
    """The types of cached keys and values, as imp.conf has them."""
    return settings.model.overrides.kv_dtype or settings.kv.dtype


def cache_types(settings: Settings) -> list[KvType]:
    """The types that the settings name; empty for `auto`."""
    words = cache_words(settings)
    return [] if words is AUTO else [KV_TYPES[word] for word in words.split("/")]


# The worker process that compiles each constraint first: Python and the grammar library.
WORKER_BYTES = 21 * 1024**2


def constraint_bytes(text: TextSettings) -> int:
    """Memory of constraints: the cache, one that the worker compiles, and one that the server compiles."""
    return text.cache_bytes + 2 * text.compile_bytes + WORKER_BYTES


MOST_MARGIN_BYTES = 4 * 1024**2


def most_received_bytes(limits: LimitsSettings) -> int:
    """Twice `limits.max_message_bytes`, but no more than 4 MiB above it."""
    return limits.max_message_bytes + min(limits.max_message_bytes, MOST_MARGIN_BYTES)
