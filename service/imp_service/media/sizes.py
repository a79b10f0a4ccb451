"""What an image's width and height decide: the size it is resized to, its tiles, and the cells they take in a prompt.

A kind of family has a class with the numbers of its image processor, named as in `preprocessor_config.json`. The
arithmetic, in Python's own numbers, is that of the reference processors of transformers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from imp_service.media.errors import ImageSettingsInvalid

_MOST_PATCH = 256
_MOST_REDUCTION = 16  # patches of a side that become one cell
# Of a tile, and of an image that is cut into tiles: the reference makes no larger one.
_MOST_SIDE = 4_096
_MOST_PIXELS = 1 << 31
_MOST_ASPECT = 200
_LAST_FILTER = 5  # of Pillow: nearest, Lanczos, bilinear, bicubic, box, Hamming
_MOST_COLOUR, _LEAST_STD = 1_000, 0.001  # of means and deviations, where 1 is white
_GEMMA4_TOKENS = (70, 140, 280, 560, 1120)


class UnfitShape(Exception):
    """The family cannot read an image of this shape. The message says what was found and what is expected."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How one image is resized and cut. Sizes are width and height, grids are rows and columns."""

    # The sizes that the image takes one after the other.
    steps: tuple[tuple[int, int], ...]
    # Tiles of the last of them, row by row; each has the same size.
    tiles: tuple[int, int]
    tile: tuple[int, int]
    # After them comes the whole image, resized to one tile.
    has_overview: bool
    # The cells of one tile.
    cells: tuple[int, int]

    @property
    def n_tiles(self) -> int:
        return math.prod(self.tiles) + self.has_overview

    @property
    def n_cells(self) -> int:
        return self.n_tiles * math.prod(self.cells)

    @property
    def n_bytes(self) -> int:
        """Of the pixels of all tiles."""
        return 3 * self.n_tiles * math.prod(self.tile)


def _require(is_right: bool, key: str, value: object, expected: str) -> None:
    if not is_right:
        raise ImageSettingsInvalid(key, f"is {value!r}, expected {expected}")


def _require_whole(key: str, value: object, least: int, most: int) -> None:
    _require(type(value) is int and least <= value <= most, key, value, f"a whole number from {least} to {most}")


def _require_side(key: str, value: object, of: int) -> None:
    _require_whole(key, value, 1, _MOST_SIDE)
    _require(isinstance(value, int) and value % of == 0, key, value, f"a multiple of {of}")


@dataclass(frozen=True, kw_only=True)
class ImageSizes(ABC):
    """What all kinds have. Raises `ImageSettingsInvalid` for a number that no processor can have."""

    # The numbers of the processor that a request may replace.
    replaceable: ClassVar[tuple[str, ...]] = ()

    patch_size: int
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    resample: int

    def __post_init__(self) -> None:
        _require_whole("patch_size", self.patch_size, 1, _MOST_PATCH)
        for key, values in (("image_mean", self.image_mean), ("image_std", self.image_std)):
            are_numbers = all(type(value) in (int, float) and abs(value) <= _MOST_COLOUR for value in values)
            _require(len(values) == 3 and are_numbers, key, values, f"three numbers up to {_MOST_COLOUR}")
        is_divisor = all(value >= _LEAST_STD for value in self.image_std)
        _require(is_divisor, "image_std", self.image_std, f"numbers of {_LEAST_STD} at least")
        _require_whole("resample", self.resample, 0, _LAST_FILTER)

    @property
    @abstractmethod
    def own_cells(self) -> int:
        """The most cells of one image, if its request says nothing."""

    @property
    def least_max_cells(self) -> int | None:
        """The least that a request may set as the most cells of its image; None if the kind does not let it."""
        return None

    def replaced(self, numbers: Mapping[str, int], most_cells: int) -> ImageSizes:
        """The sizes with other numbers of `replaceable`. No image may then take more than `most_cells`.

        Raises `ImageSettingsInvalid`.
        """
        return self

    @abstractmethod
    def cut(self, width: int, height: int, max_cells: int) -> Cut:
        """How an image of this size is read. `max_cells` has an effect where `least_max_cells` is a number.

        Raises `UnfitShape`.
        """


@dataclass(frozen=True, kw_only=True)
class Idefics3Sizes(ImageSizes):
    """SmolVLM2 and Idefics3: the longest side is given, tiles cover the image, and an overview follows them."""

    longest_edge: int
    tile_edge: int
    scale_factor: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_whole("scale_factor", self.scale_factor, 1, _MOST_REDUCTION)
        _require_side("max_image_size.longest_edge", self.tile_edge, self.patch_size * self.scale_factor)
        _require_whole("size.longest_edge", self.longest_edge, 1, _MOST_SIDE)

    @property
    def most_tiles_a_side(self) -> int:
        return math.ceil(self.longest_edge / self.tile_edge)

    @property
    def own_cells(self) -> int:
        n_tiles = self.most_tiles_a_side**2
        return (n_tiles + (n_tiles > 1)) * self._cells_a_side**2

    def cut(self, width: int, height: int, max_cells: int) -> Cut:
        first = self._with_longest_edge(width, height)
        columns, rows = self._tiles_over(*first)
        edge, side = self.tile_edge, self._cells_a_side
        return Cut(
            steps=(first, (columns * edge, rows * edge)),
            tiles=(rows, columns),
            tile=(edge, edge),
            has_overview=rows * columns > 1,
            cells=(side, side),
        )

    @property
    def _cells_a_side(self) -> int:
        return self.tile_edge // (self.patch_size * self.scale_factor)

    def _with_longest_edge(self, width: int, height: int) -> tuple[int, int]:
        """The shorter side is even, where it is not the longest edge itself."""
        ratio = width / height
        if width >= height:
            shorter = int(self.longest_edge / ratio)
            return self.longest_edge, max(shorter + shorter % 2, 1)
        shorter = int(self.longest_edge * ratio)
        return max(shorter + shorter % 2, 1), self.longest_edge

    def _tiles_over(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows: the longer side is extended to whole tiles first, and the other keeps its ratio to it."""
        ratio, edge = width / height, self.tile_edge
        if width >= height:
            columns = math.ceil(width / edge)
            return columns, math.ceil(int(columns * edge / ratio) / edge)
        rows = math.ceil(height / edge)
        return math.ceil(int(rows * edge * ratio) / edge), rows


@dataclass(frozen=True, kw_only=True)
class QwenSizes(ImageSizes):
    """Qwen3-VL and Qwen3.5: sides are multiples of the merged patch, and the area lies in a range."""

    replaceable = ("min_pixels", "max_pixels")

    merge_size: int
    min_pixels: int
    max_pixels: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.merge_size == 2, "merge_size", self.merge_size, "2")
        _require_whole("size.longest_edge", self.max_pixels, self._factor**2, _MOST_PIXELS)
        _require_whole("size.shortest_edge", self.min_pixels, 1, self.max_pixels)

    @property
    def own_cells(self) -> int:
        return self.max_pixels // self._factor**2

    @property
    def least_max_cells(self) -> int:
        return 1

    def replaced(self, numbers: Mapping[str, int], most_cells: int) -> QwenSizes:
        of_cell = self._factor**2
        most = numbers.get("max_pixels", min(self.max_pixels, most_cells * of_cell))
        _require_whole("max_pixels", most, of_cell, most_cells * of_cell)
        least = numbers.get("min_pixels", min(self.min_pixels, most))
        _require_whole("min_pixels", least, 1, most)
        return replace(self, min_pixels=least, max_pixels=most)

    def cut(self, width: int, height: int, max_cells: int) -> Cut:
        if max(width, height) > _MOST_ASPECT * min(width, height):
            most = f"this model takes sides of 1 to {_MOST_ASPECT} at most"
            raise UnfitShape(f"is {width} x {height} pixels; {most}")
        size = self._fitted(width, height, *self._range(max_cells))
        columns, rows = (side // self._factor for side in size)
        if rows * columns > max_cells:
            raise UnfitShape(f"is {width} x {height} pixels, which take {rows * columns} tokens, more than {max_cells}")
        return Cut(steps=(size,), tiles=(1, 1), tile=size, has_overview=False, cells=(rows, columns))

    @property
    def _factor(self) -> int:
        return self.patch_size * self.merge_size

    def _range(self, max_cells: int) -> tuple[int, int]:
        if max_cells == self.own_cells:
            # It may end between two numbers of cells, and its ends decide roundings.
            return self.min_pixels, self.max_pixels
        max_pixels = max_cells * self._factor**2
        # Both sides of a small image are rounded up, by less than one cell: to four times its cells at most.
        return min(self.min_pixels, max_pixels // 4), max_pixels

    def _fitted(self, width: int, height: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
        factor = self._factor
        rounded = round(width / factor) * factor, round(height / factor) * factor
        if math.prod(rounded) > max_pixels:
            scale = math.sqrt(height * width / max_pixels)
            smaller = (max(factor, math.floor(side / scale / factor) * factor) for side in (width, height))
            return next(smaller), next(smaller)
        if math.prod(rounded) < min_pixels:
            scale = math.sqrt(min_pixels / (height * width))
            larger = (math.ceil(side * scale / factor) * factor for side in (width, height))
            return next(larger), next(larger)
        return rounded


@dataclass(frozen=True, kw_only=True)
class FixedSizes(ImageSizes):
    """Gemma 3: each image is resized to one size, whatever its shape, and not cut into crops."""

    width: int
    height: int
    scale_factor: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_whole("scale_factor", self.scale_factor, 1, _MOST_REDUCTION)
        _require_side("size.width", self.width, self.patch_size * self.scale_factor)
        _require_side("size.height", self.height, self.patch_size * self.scale_factor)

    @property
    def own_cells(self) -> int:
        return math.prod(self._cells)

    def cut(self, width: int, height: int, max_cells: int) -> Cut:
        size = self.width, self.height
        return Cut(steps=(size,), tiles=(1, 1), tile=size, has_overview=False, cells=self._cells)

    @property
    def _cells(self) -> tuple[int, int]:
        reduced = self.patch_size * self.scale_factor
        return self.height // reduced, self.width // reduced


@dataclass(frozen=True, kw_only=True)
class Gemma4Sizes(ImageSizes):
    """Gemma 4: the largest multiples of the pooled patch that a number of cells has room for."""

    replaceable = ("max_soft_tokens",)

    pooling_kernel_size: int
    max_soft_tokens: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_whole("pooling_kernel_size", self.pooling_kernel_size, 1, _MOST_REDUCTION)
        self._require_one_of(_GEMMA4_TOKENS)

    @property
    def own_cells(self) -> int:
        return self.max_soft_tokens

    @property
    def least_max_cells(self) -> int:
        return min(_GEMMA4_TOKENS)

    def replaced(self, numbers: Mapping[str, int], most_cells: int) -> Gemma4Sizes:
        found = replace(self, max_soft_tokens=numbers.get("max_soft_tokens", self.max_soft_tokens))
        found._require_one_of([number for number in _GEMMA4_TOKENS if number <= most_cells])
        return found

    def _require_one_of(self, allowed: Sequence[int]) -> None:
        expected = f"one of {', '.join(map(str, allowed))}"
        _require(self.max_soft_tokens in allowed, "max_soft_tokens", self.max_soft_tokens, expected)

    def cut(self, width: int, height: int, max_cells: int) -> Cut:
        n_cells = max(number for number in _GEMMA4_TOKENS if number <= max_cells)
        unit = self.patch_size * self.pooling_kernel_size
        scale = math.sqrt(n_cells * unit**2 / (height * width))
        rows, columns = math.floor(scale * height / unit), math.floor(scale * width / unit)
        if rows == 0:
            rows, columns = 1, min(math.floor(width / height), n_cells)
        elif columns == 0:
            rows, columns = min(math.floor(height / width), n_cells), 1
        size = columns * unit, rows * unit
        return Cut(steps=(size,), tiles=(1, 1), tile=size, has_overview=False, cells=(rows, columns))
