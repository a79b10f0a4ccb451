"""Images are planned from their headers, known by a digest, and decoded once while their tiles are kept."""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from collections.abc import Iterator

import pytest

from imp_service.media import (
    CellBounds,
    CellSpan,
    EncodedImage,
    Images,
    ImageSettingsInvalid,
    ImageSizes,
    MediaLimits,
    RawImage,
)
from imp_service.media.decoder import ImageDecoder, ImageReading, Tiles
from imp_service.media.layout import layout_of
from imp_service.media.sizes import UnfitShape
from imp_service.text.errors import FieldInvalid
from service.media.conftest import MakeImages
from support.media.image_files import MODES, pixels_of
from support.media.pixel_cases import KINDS, PUBLISHED, SMALL, sides
from support.media.png_writer import chunk, file_of, header

FIXED = SMALL["fixed"]
TILE_BYTES = 3 * 224 * 112
FILES = [EncodedImage(MODES["rgb"](pixels_of(30, 20, seed))) for seed in range(4)]
CELLS = "messages[0].image.max_tokens"


class Counting(ImageDecoder):
    """Counts the images that reach the worker."""

    n_decoded = 0

    def decode(self, path: str, digest: bytes, data: bytes, reading: ImageReading) -> Tiles:
        self.n_decoded += 1
        return super().decode(path, digest, data, reading)


@pytest.fixture
def counting() -> Iterator[tuple[Images, Counting]]:
    """Images with room for the tiles of two."""
    images = Images(FIXED, MediaLimits(waiting_bytes=2 * TILE_BYTES))
    images._decoder = Counting(decode_ms=10_000)
    yield images, images._decoder
    images.close()


def decode(images: Images, *sources: EncodedImage) -> list[Tiles]:
    async def all_at_once() -> list[Tiles]:
        plans = [images.plan(source, "image") for source in sources]
        return list(await asyncio.gather(*map(images.decode, plans)))

    return asyncio.run(all_at_once())


def test_vis_7_an_image_is_decoded_once_while_its_tiles_are_kept(counting: tuple[Images, Counting]) -> None:
    images, decoder = counting
    first, again = decode(images, FILES[0], FILES[0])
    assert first is again and decoder.n_decoded == 1
    decode(images, FILES[1])
    assert decode(images, FILES[0]) == [first]
    assert decoder.n_decoded == 2
    decode(images, FILES[2])  # in place of the one that was used least recently
    decode(images, FILES[0])
    assert decoder.n_decoded == 3
    decode(images, FILES[1])
    assert decoder.n_decoded == 4


def test_vis_7_an_image_that_is_refused_is_not_kept(counting: tuple[Images, Counting]) -> None:
    images, decoder = counting
    short = EncodedImage(file_of(header(30, 20), chunk(b"IDAT", zlib.compress(bytes(91 * 19)))))
    for n in (1, 2):
        with pytest.raises(FieldInvalid, match="different sizes"):
            decode(images, short)
        assert decoder.n_decoded == n


def test_vis_7_tiles_larger_than_the_room_are_not_kept() -> None:
    images = Images(FIXED, MediaLimits(waiting_bytes=TILE_BYTES - 1))
    images._decoder = decoder = Counting(decode_ms=10_000)
    decode(images, FILES[0], FILES[0])
    assert decoder.n_decoded == 2
    images.close()


def digest(sizes: ImageSizes, source: EncodedImage | RawImage, **libraries: str) -> bytes:
    images = Images(sizes, MediaLimits())
    images._libraries = {"pil": "13.0.0", **libraries}
    found = images.plan(source, "image").digest
    images.close()
    return found


def test_vis_7_equal_digests_mean_equal_pixels() -> None:
    """Everything that decides pixels changes the digest, and so does what decides the numbers made of them."""
    source = FILES[0]
    pixels = pixels_of(30, 20)[..., :3].tobytes()
    turned = MODES["orientation 6"](pixels_of(30, 20))
    found = [
        digest(FIXED, source),
        digest(FIXED, FILES[1]),
        digest(FIXED, EncodedImage(source.data + b"\0")),
        digest(FIXED, EncodedImage(turned)),
        digest(FIXED, RawImage(30, 20, pixels)),
        digest(FIXED, RawImage(20, 30, pixels)),
        digest(FIXED, source, pil="13.0.1"),
        digest(dataclasses.replace(FIXED, resample=0), source),
        digest(dataclasses.replace(FIXED, image_std=(0.5, 0.5, 0.6)), source),
        digest(SMALL["gemma4"], source),
    ]
    assert len(set(found)) == len(found) and set(map(len, found)) == {32}
    assert digest(FIXED, EncodedImage(bytes(source.data))) == found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_vis_1_a_plan_says_what_decoding_gives(kind: str, make_images: MakeImages) -> None:
    images = make_images(SMALL[kind])
    plan = images.plan(EncodedImage(MODES["orientation 6"](pixels_of(120, 70))), "image")
    tiles = asyncio.run(images.decode(plan))
    spans = [each for each in plan.layout if isinstance(each, CellSpan)]
    assert plan.reading.header.upright == (70, 120)
    assert len(spans) == tiles.n_tiles
    assert sum(each.n_cells for each in spans) == plan.n_cells
    sizes = SMALL[kind]
    patches = tiles.n_tiles * tiles.width * tiles.height // sizes.patch_size**2
    assert patches % plan.n_cells == 0
    assert str(plan.source.data) not in repr(plan)


@pytest.mark.parametrize(
    ("kind", "max_cells", "n_cells"),
    [("qwen", None, 475), ("qwen", 16, 12), ("qwen", 2_000, 475), ("gemma4", None, 266), ("gemma4", 1_024, 540)],
)
def test_vis_1_a_request_bounds_the_cells_of_an_image(
    kind: str, max_cells: int | None, n_cells: int, make_images: MakeImages
) -> None:
    images = make_images(PUBLISHED[kind], image_tokens=2_000)
    source = RawImage(800, 600, bytes(3 * 800 * 600))
    assert images.plan(source, "image", CellBounds(max_cells)).n_cells == n_cells


@pytest.mark.parametrize(
    ("kind", "max_cells", "message"),
    [
        ("qwen", 0, "is 0, expected 1 to 1024"),
        ("qwen", 5_000, "is 5000, expected 1 to 1024"),
        ("gemma4", 69, "is 69, expected 70 to 1024"),
        ("fixed", 100, "is 100; the images of this model have a fixed number of tokens"),
        ("idefics3", 100, "is 100; the images of this model have a fixed number of tokens"),
    ],
)
def test_vis_5_a_bound_that_no_image_can_have_is_refused_at_its_field(
    kind: str, max_cells: int, message: str, make_images: MakeImages
) -> None:
    with pytest.raises(FieldInvalid) as caught:
        make_images(PUBLISHED[kind]).plan(FILES[0], "image", CellBounds(max_cells, CELLS))
    assert (caught.value.path, caught.value.message) == (CELLS, message)


NUMBERS: list[tuple[str, dict[str, int], int | None, int]] = [
    ("qwen", {"max_pixels": 100_000}, None, 88),
    ("qwen", {"max_pixels": 100_000}, 256, 88),
    ("qwen", {"max_pixels": 100_000}, 20, 15),
    ("qwen", {"min_pixels": 700_000}, None, 713),
    ("qwen", {"min_pixels": 480_000, "max_pixels": 490_000}, None, 475),
    ("gemma4", {"max_soft_tokens": 560}, None, 540),
    ("gemma4", {"max_soft_tokens": 70}, 280, 63),
    ("gemma4", {"max_soft_tokens": 560}, 80, 63),
]


@pytest.mark.parametrize(("kind", "numbers", "max_cells", "n_cells"), NUMBERS)
def test_vis_1_a_request_replaces_numbers_of_the_image_processor(
    kind: str, numbers: dict[str, int], max_cells: int | None, n_cells: int, make_images: MakeImages
) -> None:
    images = make_images(PUBLISHED[kind])
    source = RawImage(800, 600, bytes(3 * 800 * 600))
    assert images.plan(source, "image", CellBounds(max_cells, numbers=numbers)).n_cells == n_cells


@pytest.mark.parametrize(
    ("kind", "numbers", "message"),
    [
        ("qwen", {"max_pixels": 1_048_577}, "max_pixels is 1048577, expected a whole number from 1024 to 1048576"),
        ("qwen", {"max_pixels": 1_023}, "max_pixels is 1023, expected a whole number from 1024"),
        (
            "qwen",
            {"min_pixels": 9_000, "max_pixels": 8_000},
            "min_pixels is 9000, expected .* from 1 to 8000",
        ),
        ("qwen", {"min_pixels": 1_048_577}, "min_pixels is 1048577, expected a whole number from 1 to 1048576"),
        ("qwen", {"min_pixels": 0}, "min_pixels is 0, expected a whole number from 1"),
        ("gemma4", {"max_soft_tokens": 300}, "max_soft_tokens is 300, expected one of 70, 140, 280, 560"),
        ("gemma4", {"max_soft_tokens": 1_120}, "max_soft_tokens is 1120, expected one of 70, 140, 280, 560"),
    ],
)
def test_vis_5_numbers_that_no_image_processor_can_have_are_refused(
    kind: str, numbers: dict[str, int], message: str, make_images: MakeImages
) -> None:
    images = make_images(PUBLISHED[kind])
    with pytest.raises(FieldInvalid, match=message):
        images.plan(FILES[0], "image", CellBounds(numbers=numbers))
    with pytest.raises(ImageSettingsInvalid):
        images.check_numbers(numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_vis_8_the_cells_of_a_header_are_those_that_a_tower_makes_of_the_pixels(kind: str) -> None:
    """Of 500 sizes: from the pixels of each part, as the tower divides them into patches and reduces these."""
    sizes = PUBLISHED[kind]
    reduction = {"idefics3": 4, "qwen": 2, "fixed": 4, "gemma4": 3}[kind]
    n_read = 0
    for width, height in sides():
        try:
            cut = sizes.cut(width, height, sizes.own_cells)
        except UnfitShape:
            continue
        n_read += 1
        columns, rows = (side // sizes.patch_size // reduction for side in cut.tile)
        spans = [each for each in layout_of(sizes, cut) if isinstance(each, CellSpan)]
        assert [each.grid for each in spans] == [(rows, columns)] * cut.n_tiles
        assert cut.n_cells == cut.n_tiles * rows * columns
    assert n_read > 400


def test_vis_5_an_image_that_takes_more_cells_in_its_shape_is_refused(make_images: MakeImages) -> None:
    images = make_images(PUBLISHED["qwen"])
    with pytest.raises(FieldInvalid, match="image: is 150 x 1 pixels, which take 13 tokens, more than 4"):
        images.plan(RawImage(150, 1, bytes(450)), "image", CellBounds(4))


def test_vis_5_a_limit_below_what_a_family_needs_is_refused() -> None:
    with pytest.raises(ImageSettingsInvalid, match=r"media\.image_tokens: is 69, expected 70 at least"):
        Images(PUBLISHED["gemma4"], MediaLimits(image_tokens=69))
    Images(FIXED, MediaLimits(image_tokens=1)).close()
