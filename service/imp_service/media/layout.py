"""What a family writes around the cells of an image: the text and the cells that replace a chat template's placeholder.

The texts are those of the reference processors of transformers, and of the families' own templates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from imp_service.media.sizes import Cut, FixedSizes, Gemma4Sizes, Idefics3Sizes, ImageSizes, QwenSizes


@dataclass(frozen=True, slots=True)
class CellSpan:
    """Consecutive cells of one tile."""

    # The span's first row in the encoding of the image.
    first_row: int
    # Rows and columns.
    grid: tuple[int, int]

    @property
    def n_cells(self) -> int:
        return math.prod(self.grid)


# The pieces of one image, in the order of the prompt.
Layout = tuple[str | CellSpan, ...]


@dataclass(frozen=True, slots=True)
class LayoutWords:
    """The texts of a family that stand for images. Each is one token of the vocabulary."""

    # What a chat template writes for an image; the layout replaces it.
    placeholder: str
    # What stands in each cell, when a prompt is shown as text or ids.
    cell: str


_IDEFICS3_FAKE, _IDEFICS3_WHOLE = "<fake_token_around_image>", "<global-img>"
_GEMMA3_BEGIN, _GEMMA3_END = "<start_of_image>", "<end_of_image>"
_GEMMA4_BEGIN, _GEMMA4_END = "<|image>", "<image|>"
_WORDS: dict[type[ImageSizes], LayoutWords] = {
    Idefics3Sizes: LayoutWords("<image>", "<image>"),
    QwenSizes: LayoutWords("<|image_pad|>", "<|image_pad|>"),
    FixedSizes: LayoutWords(_GEMMA3_BEGIN, "<image_soft_token>"),
    Gemma4Sizes: LayoutWords("<|image|>", "<|image|>"),
}


def words_of(sizes: ImageSizes) -> LayoutWords:
    """The placeholder and the cell of a family."""
    return _WORDS[type(sizes)]


def needs_chat(sizes: ImageSizes) -> bool:
    """Whether the chat template itself writes what is around a placeholder, so that layouts are cells alone."""
    return isinstance(sizes, QwenSizes)


def layout_of(sizes: ImageSizes, cut: Cut) -> Layout:
    """What replaces the placeholder of an image that is cut like this."""
    spans = [CellSpan(tile * math.prod(cut.cells), cut.cells) for tile in range(cut.n_tiles)]
    match sizes:
        case Idefics3Sizes():
            return tuple(_tiled(cut, spans))
        case FixedSizes():
            return (f"\n\n{_GEMMA3_BEGIN}", *spans, f"{_GEMMA3_END}\n\n")
        case Gemma4Sizes():
            return (_GEMMA4_BEGIN, *spans, _GEMMA4_END)
        case _:
            return tuple(spans)  # Qwen's template itself writes <|vision_start|> and <|vision_end|>


def special_texts(sizes: ImageSizes) -> list[str]:
    """Every text of the family's layouts that must be one token of the vocabulary."""
    texts = {words_of(sizes).cell: None}
    if isinstance(sizes, Idefics3Sizes):
        side = range(sizes.most_tiles_a_side)
        texts |= dict.fromkeys((_IDEFICS3_FAKE, _IDEFICS3_WHOLE))
        texts |= dict.fromkeys(_place(row, column) for row in side for column in side) if len(side) > 1 else {}
    elif isinstance(sizes, FixedSizes):
        texts |= dict.fromkeys((_GEMMA3_BEGIN, _GEMMA3_END))
    elif isinstance(sizes, Gemma4Sizes):
        texts |= dict.fromkeys((_GEMMA4_BEGIN, _GEMMA4_END))
    return list(texts)


def _tiled(cut: Cut, spans: list[CellSpan]) -> Iterator[str | CellSpan]:
    """The tiles row by row, each with its place, and the whole image after them."""
    rows, columns = cut.tiles if cut.has_overview else (0, 0)
    for row in range(rows):
        for column in range(columns):
            yield f"{_IDEFICS3_FAKE}{_place(row, column)}"
            yield spans[row * columns + column]
        yield "\n"
    if rows:
        yield "\n"
    yield f"{_IDEFICS3_FAKE}{_IDEFICS3_WHOLE}"
    yield spans[-1]
    yield _IDEFICS3_FAKE


def _place(row: int, column: int) -> str:
    return f"<row_{row + 1}_col_{column + 1}>"
