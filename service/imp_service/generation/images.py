"""The images of a loaded model: their sizes, from the facts of its vision tower, and the token of their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imp_service.config.settings import MediaSettings
from imp_service.media import (
    CellSpan,
    FixedSizes,
    Gemma4Sizes,
    Idefics3Sizes,
    Images,
    ImageSettingsInvalid,
    ImageSizes,
    MediaLimits,
    QwenSizes,
    special_texts,
)
from imp_service.media.decoder import check_pillow
from imp_service.media.layout import words_of

if TYPE_CHECKING:
    from imp_service.text import Tokenizer

# Pillow's numbers of the filters. The core refuses a tower whose images are resized by another than its kind's.
_LANCZOS, _BILINEAR, _BICUBIC = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ModelImages:
    """How a model takes images."""

    reader: Images
    # What a prompt has in each of their cells.
    cell_token: int
    # In the decoder, the cells of a part see each other.
    is_atomic: bool = False
    # In the decoder, a cell's positions follow its row and its column.
    has_grids: bool = False

    def n_positions(self, span: CellSpan) -> int:
        """How far the positions of a prompt advance over a span."""
        return max(span.grid) if self.has_grids else span.n_cells


def model_images(vision: Mapping[str, Any], settings: MediaSettings, tokenizer: Tokenizer, name: str) -> ModelImages:
    """The images of the model with a tower, whose facts are `vision`, in the file or directory `name`.

    Raises PillowMissing, and ImageSettingsInvalid if a number of the tower, or the vocabulary, does not fit.
    """
    check_pillow()
    try:
        sizes = sizes_of(vision)
        cell_token = _cell_token(sizes, tokenizer)
        reader = Images(sizes, media_limits(settings))
    except ImageSettingsInvalid as error:
        raise ImageSettingsInvalid(f"{name}: {error.path}", error.message) from None
    return ModelImages(reader, cell_token, vision["is_atomic"], vision["n_planes"] > 1)


def sizes_of(vision: Mapping[str, Any]) -> ImageSizes:
    """The sizes of images, for the facts of a tower, which the core reads and checks."""
    mean, deviation = tuple(vision["mean"]), tuple(vision["deviation"])
    of_all = {"patch_size": vision["patch_size"], "image_mean": mean, "image_std": deviation}
    reduction, side = vision["reduction"], vision["tile_size"]
    match vision["sizing"]:
        case "range":
            least, most = vision["min_pixels"], vision["max_pixels"]
            return QwenSizes(**of_all, resample=_BICUBIC, merge_size=reduction, min_pixels=least, max_pixels=most)
        case "fixed":
            return FixedSizes(**of_all, resample=_BILINEAR, scale_factor=reduction, width=side, height=side)
        case "soft_tokens":
            most = vision["soft_tokens"]
            return Gemma4Sizes(**of_all, resample=_BICUBIC, pooling_kernel_size=reduction, max_soft_tokens=most)
        case _:
            longest = vision["longest_side"]
            return Idefics3Sizes(
                **of_all, resample=_LANCZOS, scale_factor=reduction, longest_edge=longest, tile_edge=side
            )


def media_limits(settings: MediaSettings) -> MediaLimits:
    """The bounds of the settings' section [media] for imp_service.media."""
    return MediaLimits(
        images=settings.images,
        request_bytes=settings.request_bytes,
        pixels=settings.pixels,
        side=settings.side,
        image_tokens=settings.image_tokens,
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
