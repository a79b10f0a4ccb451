"""Tiles have the bits that the image processors of transformers make, for each kind of family and mode of file."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

from imp_service.media import EncodedImage, Images, RawImage
from service.media.conftest import MakeImages
from support.media.image_files import MODES, pixels_of
from support.media.pixel_cases import KINDS, LARGE, PUBLISHED, SMALL, entries, pixel_cases, short_digest

OF_ONE_MODE = 5


def digest_of(images: Images, width: int, height: int, mode: str) -> str:
    plan = images.plan(EncodedImage(MODES[mode](pixels_of(width, height))), "image")
    return short_digest(asyncio.run(images.decode(plan)).data)


@pytest.mark.parametrize("kind", KINDS)
def test_vis_1_pixels_equal_the_references_in_every_bit(kind: str, make_images: MakeImages) -> None:
    images = make_images(SMALL[kind])
    cases = pixel_cases()
    found = [digest_of(images, each.width, each.height, each.mode) for each in cases]
    expected = entries("digests", kind)
    assert {case: digest for case, digest in zip(cases, found, strict=True) if digest not in expected} == {}
    assert found == expected
    counts = Counter(case.mode for case in cases)
    assert set(counts) == set(MODES) and min(counts.values()) >= OF_ONE_MODE


@pytest.mark.parametrize("kind", KINDS)
def test_vis_1_pixels_equal_the_references_for_published_numbers(kind: str, make_images: MakeImages) -> None:
    images = make_images(PUBLISHED[kind], image_tokens=16_384)  # as many as Qwen's own
    assert [digest_of(images, *each) for each in LARGE] == entries("large_digests", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_vis_1_another_filter_makes_other_pixels(kind: str, make_images: MakeImages) -> None:
    """The control: the digests see the filter."""
    sizes = SMALL[kind]
    others = make_images(dataclasses.replace(sizes, resample=sizes.resample % 3 + 1))
    few = list(zip(pixel_cases(), entries("digests", kind), strict=True))[10:40]
    same = [digest_of(others, each.width, each.height, each.mode) == digest for each, digest in few]
    assert sum(same) <= len(few) // 10  # an image that has its size already is not resampled


def test_vis_1_raw_pixels_are_read_like_those_of_a_file(make_images: MakeImages) -> None:
    images = make_images(SMALL["qwen"])
    pixels = pixels_of(97, 61)
    raw = images.plan(RawImage(97, 61, pixels[..., :3].tobytes()), "image.raw")
    assert short_digest(asyncio.run(images.decode(raw)).data) == digest_of(images, 97, 61, "rgb")
