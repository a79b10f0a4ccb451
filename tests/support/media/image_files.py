"""Image files of every mode that imp reads, made of random pixels; equal in each run."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from support.media.png_writer import GRAY, RGB, RGBA, chunk, png

Pixels = NDArray[np.uint8]
# Types of TIFF -> letters of struct.
BYTE, SHORT, LONG = 1, 3, 4
NUMBERS = {BYTE: "B", SHORT: "H", LONG: "I"}


def pixels_of(width: int, height: int, seed: int = 0) -> Pixels:
    """Returns four random channels, in patches of three pixels so that filters and JPEG have something to smooth."""
    rng = np.random.default_rng((seed, width, height))
    small = rng.integers(0, 256, (-(-height // 3), -(-width // 3), 4), dtype=np.uint8)
    return np.ascontiguousarray(small.repeat(3, axis=0).repeat(3, axis=1)[:height, :width])


def exif_of(orientation: int, *, kind: int = SHORT, order: str = "<") -> bytes:
    """Returns EXIF with one entry: the orientation, as a number of that type."""
    magic = b"II*\0" if order == "<" else b"MM\0*"
    value = struct.pack(order + NUMBERS[kind], orientation).ljust(4, b"\0")
    return magic + struct.pack(f"{order}IHHHI", 8, 1, 0x0112, kind, 1) + value + bytes(4)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def _image(mode: str) -> Callable[[Pixels], Image.Image]:
    return lambda pixels: Image.fromarray(pixels[..., :3]).convert(mode)


def _palette(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[..., :3]).quantize(16)


def _ycck(pixels: Pixels) -> bytes:
    """The same file as CMYK, whose marker says that its numbers are YCCK."""
    data = saved(Image.fromarray(pixels, "CMYK"), "JPEG")
    place = data.index(b"Adobe") + 11
    assert data[place] == 0
    return data[:place] + b"\x02" + data[place + 1 :]


def _wide(pixels: Pixels) -> NDArray[np.uint16]:
    return pixels.astype(np.uint16) * 256 + pixels[..., ::-1]


def _turned(orientation: int) -> Callable[[Pixels], bytes]:
    exif = exif_of(orientation, order="<>"[orientation % 2])

    def turned(pixels: Pixels) -> bytes:
        image, format = Image.fromarray(pixels[..., :3]), ("JPEG", "PNG", "WEBP")[orientation % 3]
        if format == "PNG":
            return png(pixels[..., :3], RGB, chunks=[chunk(b"eXIf", exif)])
        return saved(image, format, exif=b"Exif\0\0" + exif)

    return turned


# Mode -> the file of [height, width, 4] pixels.
MODES: dict[str, Callable[[Pixels], bytes]] = {
    "rgb": lambda pixels: png(pixels[..., :3], RGB),
    "interlaced": lambda pixels: png(pixels[..., :3], RGB, interlaced=True),
    "gray": lambda pixels: saved(_image("L")(pixels), "PNG"),
    "rgba": lambda pixels: png(pixels, RGBA),
    "la": lambda pixels: saved(Image.fromarray(pixels).convert("LA"), "PNG"),
    "one bit": lambda pixels: saved(_image("1")(pixels), "PNG"),
    "palette": lambda pixels: saved(_palette(pixels), "PNG"),
    "palette, transparent": lambda pixels: saved(_palette(pixels), "PNG", transparency=bytes(range(0, 256, 16))),
    "key colour": lambda pixels: saved(_image("L")(pixels), "PNG", transparency=int(pixels[0, 0, 0])),
    "gray of 16 bits": lambda pixels: png(_wide(pixels)[..., :1], GRAY),
    "rgb of 16 bits": lambda pixels: png(_wide(pixels)[..., :3], RGB),
    "rgba of 16 bits, interlaced": lambda pixels: png(_wide(pixels), RGBA, interlaced=True),
    "jpeg": lambda pixels: saved(_image("RGB")(pixels), "JPEG"),
    "progressive": lambda pixels: saved(_image("RGB")(pixels), "JPEG", progressive=True, subsampling=0),
    "gray jpeg": lambda pixels: saved(_image("L")(pixels), "JPEG"),
    "cmyk": lambda pixels: saved(Image.fromarray(pixels, "CMYK"), "JPEG"),
    "ycck": _ycck,
    "icc": lambda pixels: saved(_image("RGB")(pixels), "JPEG", icc_profile=bytes(range(256)) * 4),
    "webp": lambda pixels: saved(_image("RGB")(pixels), "WEBP"),
    "webp, transparent": lambda pixels: saved(Image.fromarray(pixels), "WEBP", lossless=True),
    "gif": lambda pixels: saved(_palette(pixels), "GIF"),
    "gif, transparent": lambda pixels: saved(_palette(pixels), "GIF", transparency=3),
    **{f"orientation {n}": _turned(n) for n in range(1, 9)},
}
