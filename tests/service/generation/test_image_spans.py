"""The spans of images in a prompt, of each family: their cells, and how far positions advance over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from imp_service.api.chat_prompt import PromptParts
from imp_service.api.image import Image
from imp_service.generation.images import ModelImages, sizes_of
from imp_service.generation.prompt_images import PromptImages, TokenPiece, grow_spans, plan_images
from imp_service.media import Images, ImageSizes, MediaLimits
from support.media.pixel_cases import HALF, KINDS, PUBLISHED

CELL = 9
# Of the towers for which PUBLISHED has the sizes.
COMMON = {"mean": HALF["image_mean"], "deviation": HALF["image_std"], "tile_size": 0}
FACTS: dict[str, dict[str, Any]] = {
    "idefics3": {"sizing": "tiles", "patch_size": 16, "reduction": 4, "tile_size": 512, "longest_side": 2048},
    "qwen": {"sizing": "range", "patch_size": 16, "reduction": 2, "min_pixels": 65_536, "max_pixels": 16_777_216},
    "fixed": {"sizing": "fixed", "patch_size": 14, "reduction": 4, "tile_size": 896},
    "gemma4": {"sizing": "soft_tokens", "patch_size": 16, "reduction": 3, "soft_tokens": 280},
}


@pytest.mark.parametrize("kind", KINDS)
def test_vis_4_the_sizes_of_a_family_come_from_the_facts_of_its_tower(kind: str) -> None:
    assert sizes_of({**COMMON, **FACTS[kind]}) == PUBLISHED[kind]


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[ModelImages]:
    sizes, has_grids = request.param
    with closing(Images(sizes, MediaLimits())) as images:
        yield ModelImages(images, CELL, has_grids=has_grids)


def pictures(*sizes: tuple[int, int]) -> PromptParts:
    return PromptParts(tuple(Image.raw(*size, bytes(3 * size[0] * size[1])) for size in sizes))


def grown(model: ModelImages, prompt: PromptParts) -> tuple[list[int], PromptImages]:
    """The tokens of a prompt where each span is one cell between two tokens of text."""
    planned = plan_images(model, prompt)
    n_spans = sum(plan.reading.cut.n_tiles for plan in planned.plans)
    return grow_spans([TokenPiece([1, *[CELL, 2] * n_spans], has_images=True)], planned), planned


WITH_GRIDS: list[tuple[ImageSizes, bool]] = [(PUBLISHED["qwen"], True)]
WITHOUT: list[tuple[ImageSizes, bool]] = [(PUBLISHED[kind], False) for kind in KINDS]


@pytest.mark.parametrize("model", WITH_GRIDS, indirect=True)
def test_med_11_positions_follow_the_grid_where_a_row_has_several(model: ModelImages) -> None:
    """Text goes on behind the longer side, as in transformers; tokens count cells."""
    ids, planned = grown(model, pictures((640, 320), (320, 640), (96, 2880)))
    assert [(span.first_token, span.tokens, span.positions) for span in planned.spans] == [
        (1, 200, 20),
        (202, 200, 20),
        (403, 270, 90),
    ]
    assert len(ids) == 1 + 201 + 201 + 271 and planned.n_tokens == 670


@pytest.mark.parametrize("model", WITHOUT, indirect=True, ids=KINDS)
def test_med_11_elsewhere_each_cell_has_a_position(model: ModelImages) -> None:
    ids, planned = grown(model, pictures((640, 320), (320, 640)))
    at = 1
    for span in planned.spans:
        assert (span.first_token, span.positions) == (at, span.tokens)
        assert ids[at - 1 : at + span.tokens + 1].count(CELL) == span.tokens
        at += span.tokens + 1
    assert at == len(ids)
