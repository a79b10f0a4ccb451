"""The worker that decodes images, one for each model of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from imp_service.media import Images, ImageSizes, MediaLimits

MakeImages = Callable[..., Images]


@pytest.fixture(scope="module")
def make_images() -> Iterator[MakeImages]:
    """Makes the images of a family, with other limits for the named ones; their workers end with the module."""
    made: dict[object, Images] = {}

    def make(sizes: ImageSizes, **limits: int) -> Images:
        key = sizes, tuple(limits.items())
        if key not in made:
            made[key] = Images(sizes, MediaLimits(**limits))
        return made[key]

    yield make
    for images in made.values():
        images.close()
