"""The memory that the plan reserves for Python, and for the texts and messages that the settings allow."""

from __future__ import annotations

from imp_service.config import Settings
from imp_service.config.derived import (
    constraint_bytes,
    decoding_bytes,
    front_bytes,
    most_received_bytes,
    most_received_with_images,
)
from imp_service.config.machine import memory_limit
from imp_service.config.settings import LimitsSettings, MediaSettings

# Python, the libraries, the tokenizer's tables: 60 MiB with the built-in model's, more with a large vocabulary.
PROCESS_BYTES = 96 * 1024**2
# A server works on one text larger than this at a time.
LARGE_TEXT_BYTES = 128 * 1024
# Bytes that the tokenizer library takes for each byte of a text that cannot be cut, such as one without a space.
TOKENIZING_BYTES = 160
# A waiting text is in memory twice: in its message, and as a Python string.
WAITING_COPIES = 2
# Messages of the largest size in memory at once: half of them are being received, half are being sent.
MESSAGES = 8
# Calls of gRPC that receive their request at once, each of which may take the largest message, and calls of health.
READING_CALLS, READING_HEALTH = 4, 2
# A connection: its objects, its head, what has arrived and is not read yet, and a small message.
CONNECTION_BYTES = 64 * 1024
# gRPC and HTTP.
TRANSPORTS = 2


def reserve_bytes(settings: Settings) -> int:
    """The reserved bytes, from the settings in [limits], [scheduler], [text], [connection] and [front]."""
    limits, text = settings.limits, settings.text
    return (
        PROCESS_BYTES
        + TOKENIZING_BYTES * (limits.max_prompt_bytes + text.threads * min(LARGE_TEXT_BYTES, limits.max_prompt_bytes))
        + WAITING_COPIES * settings.scheduler.max_waiting_bytes
        + 2 * one_way_bytes(limits)
        + (READING_CALLS + READING_HEALTH) * most_received_bytes(limits)
        + TRANSPORTS * settings.connection.max_connections * CONNECTION_BYTES
        + constraint_bytes(text)
        + front_bytes(settings)
    )


def image_bytes(limits: LimitsSettings, media: MediaSettings) -> int:
    """What a model that reads images reserves besides."""
    more_received = most_received_with_images(limits, media) - most_received_bytes(limits)
    return (
        media.waiting_bytes
        + (READING_CALLS + READING_HEALTH) * more_received
        + decoding_bytes(media.pixels, media.request_bytes)
    )


def one_way_bytes(limits: LimitsSettings) -> int:
    """The most bytes of large messages that are being received at once, and of those that are being sent."""
    return MESSAGES // 2 * most_received_bytes(limits)


def has_room_for_text(settings: Settings) -> bool:
    """Whether the memory limit is at least reserve_bytes(). If it is not, loading a model fails."""
    limit = memory_limit().limit_bytes
    return limit is None or limit >= reserve_bytes(settings)
