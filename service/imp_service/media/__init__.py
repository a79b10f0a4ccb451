"""Images: from the bytes of a file to the pixels of tiles, and what is written around them. Knows no model's weights.

`Images.plan` says from an image's header alone what the image costs in cells and how it is written in a prompt;
`Images.decode` then makes its pixels, in a process with limits. A model's reader makes the `ImageSizes` of its family.
"""

from imp_service.media.data_url import read_base64, read_data_url
from imp_service.media.decoder import Tiles
from imp_service.media.errors import ImageSettingsInvalid, ImagesRefused, PillowMissing
from imp_service.media.formats import FILE_FORMATS
from imp_service.media.images import FIXED_TOKENS, CellBounds, ImagePlan, Images
from imp_service.media.layout import CellSpan, LayoutWords, special_texts
from imp_service.media.limits import MediaLimits
from imp_service.media.sizes import FixedSizes, Gemma4Sizes, Idefics3Sizes, ImageSizes, QwenSizes
from imp_service.media.source import EncodedImage, ImageSource, RawImage

__all__ = [
    "FILE_FORMATS",
    "FIXED_TOKENS",
    "CellBounds",
    "CellSpan",
    "EncodedImage",
    "FixedSizes",
    "Gemma4Sizes",
    "Idefics3Sizes",
    "ImagePlan",
    "ImageSettingsInvalid",
    "ImageSizes",
    "ImageSource",
    "Images",
    "ImagesRefused",
    "LayoutWords",
    "MediaLimits",
    "PillowMissing",
    "QwenSizes",
    "RawImage",
    "Tiles",
    "read_base64",
    "read_data_url",
    "special_texts",
]
