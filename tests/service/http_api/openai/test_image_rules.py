"""What a request says about the sizes of its images, for families whose images have any size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from imp_service.api.image import Image
from imp_service.config import read_settings
from imp_service.http_api.openai.fields import TOKENIZE
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.tokens import chat_of
from imp_service.media import Images, MediaLimits
from imp_service.serving.served_model import ServedModel
from support.media.pixel_cases import PUBLISHED
from support.servers.vision_served import content_of, data_url, file_of, said

FIXED = "the images of this model have a fixed number of tokens"


@pytest.fixture(params=["qwen", "gemma4", "fixed", "text"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def served(kind: str) -> Iterator[ServedModel]:
    settings = read_settings(None, []).settings
    if kind == "text":
        yield ServedModel(settings)
        return
    with closing(Images(PUBLISHED[kind], MediaLimits())) as images:
        yield ServedModel(settings, images=images)


def read(served: ServedModel, detail: str = "auto", **fields: Any) -> tuple[list[Image], dict[str, str]]:
    """The images of a conversation, and what is wrong, by its path."""
    content = content_of({"url": data_url(file_of()), "detail": detail})
    reading = Reading({"messages": said(content), **fields}, TOKENIZE, ignores_unknown=False)
    chat = chat_of(reading, served)
    images = [part for message in chat.messages for part in message.parts() if isinstance(part, Image)]
    return images, {each.path: each.message for each in reading.violations}


TAKEN: dict[str, dict[str, int]] = {
    "qwen": {"min_pixels": 4_096, "max_pixels": 100_000},
    "gemma4": {"max_soft_tokens": 140},
    "fixed": {},
    "text": {},
}


def test_vis_5_numbers_of_the_image_processor_are_those_of_all_images(kind: str, served: ServedModel) -> None:
    [image], wrong = read(served, mm_processor_kwargs=TAKEN[kind])
    assert not wrong and dict(image.numbers) == TAKEN[kind]
    [plain], wrong = read(served)
    assert not wrong and not plain.numbers and plain.max_tokens is None


def test_vis_5_an_image_of_low_detail_takes_few_tokens(kind: str, served: ServedModel) -> None:
    [image], wrong = read(served, detail="low")
    assert not wrong and image.max_tokens == (256 if kind in ("qwen", "gemma4") else None)


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("qwen", {"max_soft_tokens": 70}, "max_soft_tokens", "not supported: this model takes min_pixels and max_pixels"),
    ("qwen", {"fps": 2}, "fps", "not supported: this model takes min_pixels and max_pixels"),
    ("qwen", {"max_pixels": "1"}, "max_pixels", '"1", expected an integer'),
    ("qwen", {"min_pixels": 9, "max_pixels": 2_000_000}, "max_pixels", "is 2000000, expected a whole number from 1024"),
    (
        "qwen",
        {"min_pixels": 9_000, "max_pixels": 8_000},
        "min_pixels",
        "is 9000, expected a whole number from 1 to",
    ),
    ("gemma4", {"max_soft_tokens": 300}, "max_soft_tokens", "is 300, expected one of 70, 140, 280, 560"),
    ("gemma4", {"min_pixels": 1}, "min_pixels", "not supported: this model takes max_soft_tokens"),
    ("fixed", {"min_pixels": 1}, "min_pixels", f"not supported: {FIXED}"),
    ("text", {"min_pixels": 1}, "min_pixels", "not supported: this model reads no images"),
]


@pytest.mark.parametrize(("kind", "numbers", "name", "words"), REFUSED)
def test_vis_5_other_numbers_are_refused_by_name(
    served: ServedModel, numbers: dict[str, Any], name: str, words: str
) -> None:
    _, wrong = read(served, mm_processor_kwargs=numbers)
    [(path, message)] = wrong.items()
    assert path == f"mm_processor_kwargs.{name}" and message.startswith(words)
