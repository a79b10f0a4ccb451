"""The limits of imp_service.media, from the keys of [media] in imp.conf."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of one request, of one image, and of all decoded images that wait."""

    # Of one request.
    images: int = 16
    request_bytes: int = 16 * MIB
    # Of one image, as its header states them.
    pixels: int = 40_000_000
    side: int = 16_384
    # Most cells of one image in the families whose images have any size.
    image_tokens: int = 1_024
    # Processor time of decoding and resizing one image; it may take twice as long on a busy machine.
    decode_ms: int = 10_000
    # Decoded tiles that are kept for a prompt with the same image.
    waiting_bytes: int = 128 * MIB
