"""The images of a loaded model: their sizes, from the facts of its vision tower, and the token of their cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from imp_service.config.settings import MediaSettings
from imp_service.media import Idefics3Sizes, Images, ImageSettingsInvalid, ImageSizes, MediaLimits, special_texts
from imp_service.media.decoder import check_pillow
from imp_service.media.layout import words_of

if TYPE_CHECKING:
    from imp_service.text import Tokenizer

# Pillow's number of the filter. The core refuses a tower whose images are resized by another.
_LANCZOS = 1


def model_images(
    vision: Mapping[str, Any], settings: MediaSettings, tokenizer: Tokenizer, name: str
) -> tuple[Images, int]:
    """What reads the images of prompts, and the token that a prompt has in each of their cells.

    `vision` has the facts of the tower in the file or directory `name`. Raises PillowMissing, and ImageSettingsInvalid
    if a number of the tower, or the vocabulary, does not fit.
    """
    check_pillow()
    try:
        sizes = sizes_of(vision)
        cell_token = _cell_token(sizes, tokenizer)
        return Images(sizes, media_limits(settings)), cell_token
    except ImageSettingsInvalid as error:
        raise ImageSettingsInvalid(f"{name}: {error.path}", error.message) from None


def sizes_of(vision: Mapping[str, Any]) -> ImageSizes:
    """The sizes of images, for the facts of a tower, which the core reads and checks."""
    return Idefics3Sizes(
        patch_size=vision["patch_size"],
        image_mean=tuple(vision["mean"]),
        image_std=tuple(vision["deviation"]),
        resample=_LANCZOS,
        longest_edge=vision["longest_side"],
        tile_edge=vision["tile_size"],
        scale_factor=vision["shuffle"],
    )


def media_limits(settings: MediaSettings) -> MediaLimits:
    """The bounds of the settings' section [media] for imp_service.media."""
    return MediaLimits(
        images=settings.images,
        request_bytes=settings.request_bytes,
        pixels=settings.pixels,
        side=settings.side,
        decode_ms=int(settings.decode_time.total_seconds() * 1000),
        waiting_bytes=settings.waiting_bytes,
    )


def _cell_token(sizes: ImageSizes, tokenizer: Tokenizer) -> int:
    """The token of cells. Each text of the layout must be a token."""
    for text in special_texts(sizes):
        if len(_ids(tokenizer, text)) != 1:
            raise ImageSettingsInvalid("vocabulary", f"has no token {text}, which is written around images")
    (token,) = _ids(tokenizer, words_of(sizes).cell)
    return token


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
