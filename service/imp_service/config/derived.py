"""Values that follow from several settings."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.config.kinds import Auto
from imp_service.config.settings import LimitsSettings, MediaSettings, Settings, TextSettings
from imp_service.tables import KV_TYPES, KvType


def approximations(kv_dtypes: Sequence[str]) -> str:
    """The lossy features that affect every reply, comma-separated; empty if there are none.

    `kv_dtypes` are the types of the cache, by layer.
    """
    return f"kv={one_word(kv_dtypes)}" if any(kind.is_quantized for kind in types_of(kv_dtypes)) else ""


def one_word(kv_dtypes: Sequence[str]) -> str:
    """The types of all layers, or "mixed"."""
    return kv_dtypes[0] if len(set(kv_dtypes)) == 1 else "mixed"


def types_of(kv_dtypes: Sequence[str]) -> list[KvType]:
    """Every type that these words name."""
    return [KV_TYPES[name] for word in kv_dtypes for name in word.split("/")]


def cache_words(settings: Settings) -> str | Auto:
    """The types of cached keys and values, as imp.conf has them. `kv_layers` may name others for some layers."""
    return settings.model.overrides.kv_dtype or settings.kv.dtype


# The worker process that compiles each constraint first: Python and the grammar library.
WORKER_BYTES = 21 * 1024**2


def constraint_bytes(text: TextSettings) -> int:
    """Memory of constraints: the cache, one that the worker compiles, and one that the server compiles."""
    return text.cache_bytes + 2 * text.compile_bytes + WORKER_BYTES


# The worker process that decodes images, with Python and Pillow; and for each pixel of an image what the canvases of
# Pillow and libwebp take. A progressive JPEG takes ten bytes.
IMAGE_WORKER_BYTES = 64 * 1024**2
IMAGE_PIXEL_BYTES = 18


def decoding_bytes(n_pixels: int, n_bytes: int) -> int:
    """The most memory that the decoding of one image may take, for its pixels and the bytes that were sent."""
    return IMAGE_WORKER_BYTES + IMAGE_PIXEL_BYTES * n_pixels + 2 * n_bytes


# A front: Python and its libraries, and each connection on its way to and from a server.
FRONT_BYTES = 80 * 1024**2
FRONT_CONNECTION_BYTES = 32 * 1024


def front_bytes(settings: Settings) -> int:
    """Memory of the front of `imp serve --survive`; 0 without it."""
    if not settings.front.survive:
        return 0
    return FRONT_BYTES + settings.front.memory + settings.connection.max_connections * FRONT_CONNECTION_BYTES


MOST_MARGIN_BYTES = 4 * 1024**2


def most_received_bytes(limits: LimitsSettings) -> int:
    """Twice `limits.max_message_bytes`, but no more than 4 MiB above it."""
    return _with_margin(limits.max_message_bytes)


def most_received_with_images(limits: LimitsSettings, media: MediaSettings) -> int:
    """The same for a server whose model reads images."""
    return _with_margin(max(limits.max_message_bytes, media.request_bytes))


def _with_margin(n_bytes: int) -> int:
    return n_bytes + min(n_bytes, MOST_MARGIN_BYTES)
