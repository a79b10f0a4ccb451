"""Writes PNG files of any colour type and depth, interlaced or not, and with any chunks; Pillow writes fewer."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
# First row and column of each pass of an interlaced file, and the steps between them.
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def header(width: int, height: int, *, colour: int = RGB, depth: int = 8, interlaced: bool = False) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def file_of(*chunks: bytes) -> bytes:
    return SIGNATURE + b"".join(chunks) + chunk(b"IEND")


def rows_of(pixels: NDArray[np.uint8] | NDArray[np.uint16]) -> bytes:
    """Returns rows [height, width, samples], each with its filter, of 8 or 16 bits."""
    stored = pixels.astype(pixels.dtype.newbyteorder(">"))
    return b"".join(b"\0" + row.tobytes() for row in stored)


def png(
    pixels: NDArray[np.uint8] | NDArray[np.uint16],
    colour: int,
    *,
    interlaced: bool = False,
    chunks: Iterable[bytes] = (),
) -> bytes:
    """Returns a file of pixels [height, width, samples], with chunks before the data."""
    height, width, _ = pixels.shape
    depth = 8 * pixels.dtype.itemsize
    passes = [pixels[y::dy, x::dx] for y, x, dy, dx in PASSES] if interlaced else [pixels]
    data = b"".join(rows_of(part) for part in passes if part.size)
    start = header(width, height, colour=colour, depth=depth, interlaced=interlaced)
    return file_of(start, *chunks, chunk(b"IDAT", zlib.compress(data)))
