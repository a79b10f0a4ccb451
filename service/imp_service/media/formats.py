"""Reads the header of an image file: its format, size, number of frames and orientation. Decodes no pixel.

A file is walked from its first part to its last: what ends early or contradicts itself is refused here, in time that
grows with the number of bytes alone. Nothing is allocated for a size that a header claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

MOST_SCANS = 64  # of a JPEG; each costs as much as the whole image
# A file of more chunks, segments, blocks or entries is refused: 16 MiB of parts of two bytes would take seconds.
_MOST_PARTS = 1 << 17
_UPRIGHT = 1
_ORIENTATIONS = range(1, 9)
_ORIENTATION_TAG = 0x0112
# Numbers of EXIF: type -> bytes.
_EXIF_NUMBERS = {1: 1, 3: 2, 4: 4}
_SEND = "send PNG, JPEG, WebP or GIF"
# Inside the data of a scan, FF is a marker unless a zero, a restart marker or another FF follows.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
_END_OF_JPEG, _SCAN, _APP1 = 0xD9, 0xDA, 0xE1
_WITHOUT_SEGMENT = (0x01, *range(0xD0, 0xD8))
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EXTENSION, _FRAME, _END_OF_GIF = 0x21, 0x2C, 0x3B
_EXIF = b"Exif\0\0"
_Order = Literal["big", "little"]
_EXIF_ORDERS: dict[bytes, _Order] = {b"II": "little", b"MM": "big"}
_SVG = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml|<!--|<!DOCTYPE\s+svg|<svg)", re.IGNORECASE)
_OF_BRAND = {
    b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"heim": "HEIC", b"heis": "HEIC",
    b"hevc": "HEIC", b"hevx": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC",
}  # fmt: skip
_REFUSED = (
    (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"II+\0", "TIFF"), (b"MM\0+", "TIFF"), (b"BM", "BMP"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"), (b"\xff\x4f\xff\x51", "JPEG 2000"),
)  # fmt: skip


class NotAnImage(Exception):
    """The bytes are no image that imp reads. The message says what was found and what is expected."""


class ImageFormat(StrEnum):
    """How the pixels are sent."""

    PNG = "PNG"
    JPEG = "JPEG"
    WEBP = "WebP"
    GIF = "GIF"
    RAW = "raw"


FILE_FORMATS = tuple(format.value for format in ImageFormat if format is not ImageFormat.RAW)


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its one image; sides as they are stored, before the image is turned upright."""

    format: ImageFormat
    width: int
    height: int
    # As in EXIF: 1 is upright, 5 to 8 exchange the sides.
    orientation: int = _UPRIGHT

    @property
    def upright(self) -> tuple[int, int]:
        """Width and height as the image is seen."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


def read_header(data: bytes) -> Header:
    """Raises `NotAnImage`, also for a file of several frames."""
    for magic, format, read in _READERS:
        if data.startswith(magic) and (format is not ImageFormat.WEBP or data[8:12] == b"WEBP"):
            reader = _Reader(data, format)
            found = read(reader)
            if found.width < 1 or found.height < 1:
                raise reader.damaged(f"it is {found.width} x {found.height} pixels")
            return found
    if name := _refused_format(data):
        raise NotAnImage(f"is {name}; {_SEND}")
    raise NotAnImage(f"is no PNG, JPEG, WebP or GIF, but {len(data)} other bytes; {_SEND}")


def _refused_format(data: bytes) -> str:
    if data[4:8] == b"ftyp":
        return _OF_BRAND.get(data[8:12], "")
    if _SVG.match(data[:1024]) and b"<svg" in data[:1024].lower():
        return "SVG"
    return next((name for magic, name in _REFUSED if data.startswith(magic)), "")


class _Reader:
    """A position in the bytes that never passes their end."""

    def __init__(self, data: bytes, format: ImageFormat) -> None:
        self.data = data
        self.at = 0
        self._format = format
        self._n_parts = 0

    def view(self, n: int) -> memoryview:
        """The next bytes, not copied."""
        begin = self.at
        self.skip(n)
        return memoryview(self.data)[begin : self.at]

    def number(self, n: int, order: _Order) -> int:
        """The next bytes as a number."""
        return int.from_bytes(self.view(n), order)

    def skip(self, n: int) -> None:
        """Passes bytes that must be there."""
        if len(self.data) - self.at < n:
            raise self.damaged(f"ends at byte {len(self.data)} within a part")
        self.at += n

    def next_part(self) -> None:
        """Counts a part of the file."""
        self._n_parts += 1
        if self._n_parts > _MOST_PARTS:
            raise NotAnImage(f"is {self._format} in more than {_MOST_PARTS} parts")

    def damaged(self, how: str) -> NotAnImage:
        return NotAnImage(f"is a damaged {self._format}: {how}")

    def animated(self) -> NotAnImage:
        return NotAnImage(f"is {self._format} of several frames; send one frame")


def _read_png(reader: _Reader) -> Header:
    reader.skip(8)
    size = (0, 0)
    orientation = _UPRIGHT
    has_size = has_pixels = False
    kind = b""
    while kind != b"IEND":
        reader.next_part()
        length, kind = reader.number(4, "big"), bytes(reader.view(4))
        content = reader.view(length)
        reader.skip(4)  # the checksum
        if has_size == (kind == b"IHDR") or (kind == b"IHDR" and length != 13):
            raise reader.damaged("it must begin with one header of 13 bytes")
        if kind == b"IHDR":
            has_size = True
            size = _size(content, "big", 4)
        elif kind == b"IDAT":
            has_pixels = True
        elif kind == b"eXIf":
            orientation = _orientation(content, reader)
        elif kind == b"fdAT" or (kind == b"acTL" and int.from_bytes(content[:4], "big") > 1):
            raise reader.animated()
    if not has_pixels:
        raise reader.damaged("it has no pixels")
    return Header(ImageFormat.PNG, *size, orientation)


def _read_jpeg(reader: _Reader) -> Header:
    reader.skip(2)
    size: tuple[int, int] | None = None
    orientation, n_scans = _UPRIGHT, 0
    while (marker := _jpeg_marker(reader)) != _END_OF_JPEG:
        content = reader.view(max(reader.number(2, "big"), 2) - 2)
        if marker in _JPEG_FRAMES:
            if size is not None or len(content) < 6:
                raise reader.damaged("it must have one frame header")
            height, width = _size(content[1:], "big", 2)
            size = width, height
        elif marker == _APP1 and content[:6] == _EXIF:
            orientation = _orientation(content, reader)
        elif marker == _SCAN:
            n_scans += 1
            if n_scans > MOST_SCANS:
                raise NotAnImage(f"is JPEG in more than {MOST_SCANS} scans; save it with fewer")
            if (found := _NEXT_MARKER.search(reader.data, reader.at)) is None:
                raise reader.damaged(f"ends at byte {len(reader.data)} within a scan")
            reader.at = found.start()
    if size is None or not n_scans:
        raise reader.damaged("it has no pixels")
    return Header(ImageFormat.JPEG, *size, orientation)


def _jpeg_marker(reader: _Reader) -> int:
    """The next marker that begins a segment, or the last one. Any number of FF may come before it."""
    while True:
        reader.next_part()
        begin = reader.at
        prefix, marker = reader.number(1, "big"), reader.number(1, "big")
        while marker == 0xFF:
            reader.next_part()
            marker = reader.number(1, "big")
        if prefix != 0xFF or marker in (0x00, 0xD8):
            raise reader.damaged(f"no marker is at byte {begin}")
        if marker not in _WITHOUT_SEGMENT:
            return marker


def _read_webp(reader: _Reader) -> Header:
    reader.skip(4)
    end = reader.number(4, "little") + reader.at
    if end > len(reader.data):
        raise reader.damaged(f"it has {len(reader.data)} bytes of {end}")
    reader.skip(4)
    sizes: dict[bytes, tuple[int, int]] = {}
    orientation, n_frames = _UPRIGHT, 0
    while reader.at < end:
        reader.next_part()
        kind, length = bytes(reader.view(4)), reader.number(4, "little")
        content = reader.view(length)
        reader.at += min(length % 2, max(end - reader.at, 0))  # chunks are padded to even lengths
        if kind in _WEBP_SIZES:
            if kind in sizes:
                raise reader.damaged("it has two images")
            sizes[kind] = _WEBP_SIZES[kind](content, reader)
        elif kind == b"EXIF":
            orientation = _orientation(content, reader)
        elif kind == b"ANMF":
            n_frames += 1
    if n_frames > 1:
        raise reader.animated()
    if len(set(sizes.values())) > 1:
        raise reader.damaged("its header and its pixels have different sizes")
    if not sizes or not (n_frames or {b"VP8 ", b"VP8L"} & sizes.keys()):
        raise reader.damaged("it has no pixels")
    return Header(ImageFormat.WEBP, *next(iter(sizes.values())), orientation)


def _canvas_size(content: memoryview, reader: _Reader) -> tuple[int, int]:
    if len(content) < 10:
        raise reader.damaged("its header is too short")
    width, height = _size(content[4:], "little", 3)
    return width + 1, height + 1


def _lossy_size(content: memoryview, reader: _Reader) -> tuple[int, int]:
    if len(content) < 10 or content[0] & 1 or bytes(content[3:6]) != b"\x9d\x01\x2a":
        raise reader.damaged("its pixels do not begin with a key frame")
    width, height = _size(content[6:], "little", 2)
    return width & 0x3FFF, height & 0x3FFF


def _lossless_size(content: memoryview, reader: _Reader) -> tuple[int, int]:
    if len(content) < 5 or content[0] != 0x2F:
        raise reader.damaged("its pixels do not begin with their signature")
    bits = int.from_bytes(content[1:5], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


_WEBP_SIZES = {b"VP8X": _canvas_size, b"VP8 ": _lossy_size, b"VP8L": _lossless_size}


def _read_gif(reader: _Reader) -> Header:
    reader.skip(6)
    screen = _size(reader.view(4), "little", 2)
    _skip_colours(reader, reader.number(1, "little"))
    reader.skip(2)
    n_frames = 0
    while (block := reader.number(1, "little")) != _END_OF_GIF:
        reader.next_part()
        if block == _EXTENSION:
            reader.skip(1)
        elif block == _FRAME:
            n_frames += 1
            if n_frames > 1:
                raise reader.animated()
            place = reader.view(8)
            (left, top), (width, height) = _size(place, "little", 2), _size(place[4:], "little", 2)
            if left + width > screen[0] or top + height > screen[1]:
                raise reader.damaged("its header and its pixels have different sizes")
            _skip_colours(reader, reader.number(1, "little"))
            reader.skip(1)
        else:
            raise reader.damaged(f"no block begins at byte {reader.at - 1}")
        while length := reader.number(1, "little"):
            reader.next_part()
            reader.skip(length)
    if not n_frames:
        raise reader.damaged("it has no pixels")
    return Header(ImageFormat.GIF, *screen)


def _skip_colours(reader: _Reader, flags: int) -> None:
    """Passes a table of colours, which the flags announce. That of the screen comes two bytes later."""
    if flags & 0x80:
        reader.skip(3 << ((flags & 7) + 1))


def _size(content: memoryview, order: _Order, n: int) -> tuple[int, int]:
    """Two numbers of that many bytes."""
    return int.from_bytes(content[:n], order), int.from_bytes(content[n : 2 * n], order)


def _orientation(exif: memoryview, reader: _Reader) -> int:
    """The orientation in the first directory of EXIF; upright if it is not there, or is none."""
    if exif[:6] == _EXIF:
        exif = exif[6:]
    if len(exif) < 8 or bytes(exif[:2]) not in _EXIF_ORDERS:
        return _UPRIGHT
    order = _EXIF_ORDERS[bytes(exif[:2])]
    directory = exif[int.from_bytes(exif[4:8], order) :]
    for entry in range(2, 2 + 12 * int.from_bytes(directory[:2], order), 12):
        field = directory[entry : entry + 12]
        if len(field) < 12:
            break
        reader.next_part()
        n_bytes = _EXIF_NUMBERS.get(int.from_bytes(field[2:4], order), 0)
        if int.from_bytes(field[:2], order) == _ORIENTATION_TAG and int.from_bytes(field[4:8], order) == 1:
            found = int.from_bytes(field[8 : 8 + n_bytes], order)
            return found if found in _ORIENTATIONS else _UPRIGHT
    return _UPRIGHT


_READERS: tuple[tuple[bytes, ImageFormat, Callable[[_Reader], Header]], ...] = (
    (b"\x89PNG\r\n\x1a\n", ImageFormat.PNG, _read_png),
    (b"\xff\xd8\xff", ImageFormat.JPEG, _read_jpeg),
    (b"RIFF", ImageFormat.WEBP, _read_webp),
    (b"GIF87a", ImageFormat.GIF, _read_gif),
    (b"GIF89a", ImageFormat.GIF, _read_gif),
)
