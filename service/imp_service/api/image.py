"""An image of a prompt, as callers send it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from .errors import invalid

_OWN: Mapping[str, int] = MappingProxyType({})
_FILE = "the bytes of a file, a path, an array [height, width, 3] of uint8, or an image of Pillow"


@dataclass(frozen=True, slots=True, init=False)
class Image:
    """An image: a PNG, JPEG, WebP or GIF file, or pixels.

    `source` is the bytes of a file, its path, an array [height, width, 3] of uint8 as NumPy has it, or an image of
    Pillow. `max_tokens` bounds its tokens in the prompt, where the model's images have any size.
    """

    # A file; or rows of pixels from the top, three bytes each: red, green, blue.
    data: bytes = field(repr=False)
    # Width and height of pixels. None: the data is a file.
    size: tuple[int, int] | None
    max_tokens: int | None
    # Of the image processor, in place of the model's own. Only OpenAI's API has a field for them.
    numbers: Mapping[str, int] = field(hash=False)

    def __init__(self, source: object, *, max_tokens: int | None = None) -> None:
        data, size = _content_of(source)
        self._set(data, size, max_tokens)

    @classmethod
    def open(cls, path: str | PathLike[str], *, max_tokens: int | None = None) -> Self:
        """The image in a file."""
        return cls(Path(path), max_tokens=max_tokens)

    @classmethod
    def raw(cls, width: int, height: int, data: bytes, *, max_tokens: int | None = None) -> Self:
        """Pixels, right or wrong: their number is checked with the request."""
        made = object.__new__(cls)
        made._set(data, (width, height), max_tokens)
        return made

    def with_numbers(self, numbers: Mapping[str, int]) -> Self:
        """The image, read with these numbers of the image processor."""
        made = object.__new__(type(self))
        made._set(self.data, self.size, self.max_tokens, numbers)
        return made

    def _set(
        self,
        data: bytes,
        size: tuple[int, int] | None,
        max_tokens: int | None,
        numbers: Mapping[str, int] = _OWN,
    ) -> None:
        given = {"data": data, "size": size, "max_tokens": max_tokens, "numbers": numbers}
        for name, value in given.items():
            object.__setattr__(self, name, value)


def _content_of(source: Any) -> tuple[bytes, tuple[int, int] | None]:
    """The bytes, and the size of pixels."""
    if isinstance(source, str | PathLike):
        return Path(source).read_bytes(), None
    if isinstance(source, bytes | bytearray):
        return bytes(source), None
    if hasattr(source, "convert") and hasattr(source, "tobytes"):
        # Pillow's. Neither it nor NumPy is imported here.
        upright = source.convert("RGB")
        return upright.tobytes(), (upright.width, upright.height)
    try:
        view = memoryview(source)
    except TypeError:
        raise invalid("image", f"{type(source).__name__}, expected {_FILE}") from None
    if view.ndim != 3 or view.shape is None or view.shape[2] != 3 or view.format != "B":
        raise invalid("image", f"an array {list(view.shape or ())} of format {view.format}, expected {_FILE}")
    return view.tobytes(), (view.shape[1], view.shape[0])
