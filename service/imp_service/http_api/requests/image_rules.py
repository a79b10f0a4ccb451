"""What a request says about the sizes of its images, in the words of OpenAI and of vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from imp_service.api.image import Image
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.values import WrongValue, members, read_members, whole
from imp_service.media import FIXED_TOKENS, Images, ImageSettingsInvalid
from imp_service.serving.served_model import ServedModel

NUMBERS = "mm_processor_kwargs"
# Tokens of an image with `detail: low`, at most, where the model's images have any size.
LOW_TOKENS = 256


@dataclass(frozen=True, slots=True)
class ImageRules:
    """The sizes of all images of a request."""

    # The most tokens of an image with `detail: low`; None: the model's images have a fixed number of them.
    low: int | None = None
    # Of the image processor, in place of the model's own.
    numbers: Mapping[str, int] = field(default_factory=dict)

    def image(self, data: bytes, *, is_low: bool) -> Image:
        """The image in a file."""
        image = Image(data, max_tokens=self.low if is_low else None)
        return image.with_numbers(self.numbers) if self.numbers else image


def image_rules(reading: Reading, served: ServedModel) -> ImageRules:
    """The sizes that a body asks for. What is wrong is added to the reading."""
    images = served.images
    no_numbers: Mapping[str, int] = {}
    numbers = reading.read(NUMBERS, lambda value: _numbers(value, images), no_numbers)
    return ImageRules(None if images is None else images.few_cells(LOW_TOKENS), numbers)


def _numbers(value: Any, images: Images | None) -> Mapping[str, int]:
    """The numbers of an image processor. Those that the model's own does not have are refused by their names."""
    known = () if images is None else images.replaceable
    for name, each in members(value).items():
        if each is not None and name not in known:
            raise WrongValue(f"not supported: {_takes(images)}", f".{name}")
    numbers = read_members(value, dict.fromkeys(known, whole))
    try:
        if images is not None and numbers:
            images.check_numbers(numbers)
    except ImageSettingsInvalid as error:
        raise WrongValue(error.message, f".{error.path}") from None
    return numbers


def _takes(images: Images | None) -> str:
    if images is None:
        return "this model reads no images"
    return f"this model takes {' and '.join(images.replaceable)}" if images.replaceable else FIXED_TOKENS
