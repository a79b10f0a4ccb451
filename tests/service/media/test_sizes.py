"""Sizes, tiles and cells follow from width and height alone, as those of transformers do; wrong numbers are refused."""

from __future__ import annotations

import dataclasses
import math

import pytest

from imp_service.media import FixedSizes, Gemma4Sizes, Idefics3Sizes, ImageSettingsInvalid, ImageSizes, QwenSizes
from imp_service.media.sizes import UnfitShape
from support.media.pixel_cases import KINDS, N_SIDES, PUBLISHED, REFUSED, SMALL, entries, sides

TILED = PUBLISHED["idefics3"]
QWEN = PUBLISHED["qwen"]


def words_of(sizes: ImageSizes, width: int, height: int) -> str:
    """Returns the last size, and before tiles the first, as the table has them."""
    try:
        cut = sizes.cut(width, height, sizes.own_cells)
    except UnfitShape:
        return REFUSED
    steps = cut.steps[::-1]
    return ",".join(str(side) for step in steps for side in step)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fixed"])
def test_vis_1_sizes_equal_those_of_transformers(kind: str) -> None:
    found = [words_of(PUBLISHED[kind], *each) for each in sides()]
    assert len(found) == N_SIDES
    assert found == entries("sides", kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", [PUBLISHED, SMALL], ids=["published", "small"])
def test_vis_1_tiles_and_cells_cover_the_last_size(kind: str, table: dict[str, ImageSizes]) -> None:
    sizes = table[kind]
    for width, height in sides():
        if max(width, height) > 60 * min(width, height):
            continue  # Qwen refuses it, or it takes more cells than the smaller range has
        cut = sizes.cut(width, height, sizes.own_cells)
        (rows, columns), tile, last = cut.tiles, cut.tile, cut.steps[-1]
        assert (columns * tile[0], rows * tile[1]) == last
        assert tile[0] * cut.cells[0] == tile[1] * cut.cells[1]  # cells are square
        assert cut.has_overview == (rows * columns > 1)
        assert cut.n_cells == (rows * columns + cut.has_overview) * math.prod(cut.cells) <= sizes.own_cells


def test_vis_1_an_image_of_one_tile_has_no_overview() -> None:
    assert TILED.cut(512, 512, 0).n_tiles == 17  # the longest side becomes 2048
    one = dataclasses.replace(TILED, longest_edge=512).cut(700, 500, 0)
    assert (one.steps, one.n_tiles, one.n_cells) == (((512, 366), (512, 512)), 1, 64)


@pytest.mark.parametrize("max_cells", [4, 64, 256, 1024, 4096])
def test_vis_1_an_image_takes_no_more_cells_than_asked(max_cells: int) -> None:
    n_read = 0
    for width, height in sides():
        aspect = max(width, height) / min(width, height)
        try:
            n_cells = QWEN.cut(width, height, max_cells).n_cells
        except UnfitShape:
            assert aspect > min(max_cells, 200)
            continue
        n_read += 1
        assert n_cells <= max_cells
        if width * height > 4096 * 1024 and aspect < 4 and max_cells >= 64:
            assert n_cells > max_cells * 0.6
    assert n_read > 100


@pytest.mark.parametrize(("max_cells", "most"), [(70, 70), (139, 70), (140, 140), (1119, 560), (1120, 1120)])
def test_vis_1_gemma_4_takes_the_largest_number_that_it_knows(max_cells: int, most: int) -> None:
    n_cells = PUBLISHED["gemma4"].cut(1000, 990, max_cells).n_cells
    assert most * 0.85 < n_cells <= most


@pytest.mark.parametrize(("width", "height"), [(201, 1), (1, 201), (16_384, 81)])
def test_vis_5_an_aspect_above_200_is_refused(width: int, height: int) -> None:
    with pytest.raises(UnfitShape, match=f"is {width} x {height} pixels; this model takes sides of 1 to 200 at most"):
        QWEN.cut(width, height, QWEN.own_cells)
    QWEN.cut(200, 1, QWEN.own_cells)


WRONG = [
    ("qwen", {"patch_size": 0}, "patch_size: is 0, expected a whole number from 1 to 256"),
    ("qwen", {"patch_size": "16"}, "patch_size: is '16', expected a whole number"),
    ("qwen", {"patch_size": True}, "patch_size: is True, expected a whole number"),
    ("fixed", {"image_mean": (0.5, 0.5)}, r"image_mean: is \(0.5, 0.5\), expected three numbers up to 1000"),
    ("fixed", {"image_mean": (0.5, 0.5, math.nan)}, "image_mean: is .*, expected three numbers"),
    ("fixed", {"image_mean": (0.5, 0.5, 10**400)}, "image_mean: is .*, expected three numbers"),
    ("fixed", {"image_mean": (0.5, 0.5, "0.5")}, "image_mean: is .*, expected three numbers"),
    ("fixed", {"image_std": (0.5, 0.0, 0.5)}, "image_std: is .*, expected numbers of 0.001 at least"),
    ("gemma4", {"resample": 6}, "resample: is 6, expected a whole number from 0 to 5"),
    ("gemma4", {"resample": "bicubic"}, "resample: is 'bicubic'"),
    ("idefics3", {"longest_edge": -1}, "size.longest_edge: is -1, expected a whole number from 1 to 4096"),
    ("idefics3", {"tile_edge": 500}, "max_image_size.longest_edge: is 500, expected a multiple of 64"),
    ("idefics3", {"scale_factor": 0}, "scale_factor: is 0"),
    ("qwen", {"merge_size": 7}, "merge_size: is 7, expected 2"),
    ("qwen", {"max_pixels": 1023}, "size.longest_edge: is 1023, expected a whole number from 1024"),
    ("qwen", {"min_pixels": 1 << 25}, "size.shortest_edge: is 33554432, expected a whole number from 1 to 16777216"),
    ("fixed", {"width": -1}, "size.width: is -1"),
    ("fixed", {"height": 900}, "size.height: is 900, expected a multiple of 56"),
    ("gemma4", {"max_soft_tokens": 300}, "max_soft_tokens: is 300, expected one of 70, 140, 280, 560, 1120"),
    ("gemma4", {"pooling_kernel_size": 17}, "pooling_kernel_size: is 17"),
]


@pytest.mark.parametrize(("kind", "changed", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_vis_5_a_wrong_number_is_refused_by_its_key_and_value(
    kind: str, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ImageSettingsInvalid, match=message) as caught:
        dataclasses.replace(PUBLISHED[kind], **changed)
    assert caught.value.reason == "MODEL_CONFIG"


def test_vis_5_each_class_of_sizes_is_tested() -> None:
    assert {type(each) for each in PUBLISHED.values()} == {Idefics3Sizes, QwenSizes, FixedSizes, Gemma4Sizes}
