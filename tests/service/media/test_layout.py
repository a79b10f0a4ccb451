"""What is written around the cells of an image is what the processors of transformers write."""

from __future__ import annotations

import pytest

from imp_service.media import CellSpan, ImageSizes, special_texts
from imp_service.media.layout import layout_of, needs_chat, words_of
from imp_service.media.sizes import Cut
from support.media.pixel_cases import KINDS, PUBLISHED, table

# Grids of tiles of the table, and the cells of a tile.
GRIDS = [(1, 1), (1, 2), (2, 1), (3, 4), (4, 4)]
CELLS = (1, 2)


def written(sizes: ImageSizes, tiles: tuple[int, int]) -> str:
    rows, columns = tiles
    cut = Cut(steps=((columns, rows),), tiles=tiles, tile=(1, 1), has_overview=rows * columns > 1, cells=CELLS)
    cell = words_of(sizes).cell
    pieces = layout_of(sizes, cut)
    return "".join(each if isinstance(each, str) else cell * each.n_cells for each in pieces)


def test_vis_5_tiles_are_written_as_transformers_writes_them() -> None:
    assert [written(PUBLISHED["idefics3"], grid) for grid in GRIDS] == table()["layouts"]["idefics3"]


def test_vis_5_one_image_is_written_as_transformers_writes_it() -> None:
    for kind in ("gemma4", "fixed"):
        assert [written(PUBLISHED[kind], (1, 1))] == table()["layouts"][kind]
    # The template writes what stands around them.
    assert written(PUBLISHED["qwen"], (1, 1)) == "<|image_pad|><|image_pad|>"


@pytest.mark.parametrize("kind", KINDS)
def test_vis_5_the_spans_are_all_rows_of_the_encoding_in_order(kind: str) -> None:
    sizes = PUBLISHED[kind]
    cut = sizes.cut(640, 480, sizes.own_cells)
    spans = [each for each in layout_of(sizes, cut) if isinstance(each, CellSpan)]
    assert len(spans) == cut.n_tiles
    assert [each.grid for each in spans] == [cut.cells] * cut.n_tiles
    assert [row for each in spans for row in range(each.first_row, each.first_row + each.n_cells)] == [
        *range(cut.n_cells)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_vis_5_the_special_texts_are_those_that_a_layout_may_write(kind: str) -> None:
    sizes = PUBLISHED[kind]
    rest = written(sizes, (4, 4) if kind == "idefics3" else (1, 1))
    texts = special_texts(sizes)
    for text in texts:
        assert text in rest
        rest = rest.replace(text, "")
    assert rest.strip("\n") == ""
    assert len(texts) == len(set(texts)) == {"idefics3": 19, "qwen": 1, "fixed": 3, "gemma4": 3}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_vis_9_a_family_needs_a_chat_whose_layouts_have_no_text(kind: str) -> None:
    sizes = PUBLISHED[kind]
    layout = layout_of(sizes, sizes.cut(640, 480, sizes.own_cells))
    assert needs_chat(sizes) == all(isinstance(each, CellSpan) for each in layout) == (kind == "qwen")
