"""Bytes that are no image, or a harmful one, are refused in our words or served; the process that decodes lives on."""

from __future__ import annotations

import asyncio
import io
import random
import re
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from imp_service.media import EncodedImage, Images, RawImage, read_data_url
from imp_service.media.formats import MOST_SCANS, NotAnImage, read_header
from imp_service.text.errors import FieldInvalid
from service.media.conftest import MakeImages
from support.media.image_files import LONG, MODES, SHORT, Pixels, exif_of, pixels_of, saved
from support.media.pixel_cases import KINDS, PUBLISHED, SMALL
from support.media.png_writer import PALETTE, RGB, SIGNATURE, chunk, file_of, header, png, rows_of
from support.run.release_run import repetitions

PATH = "chat.messages[0].parts[1].image.encoded"
ADDRESS = re.compile(r"0x[0-9a-f]{4}|object at|Traceback|\.py\b")
PIXELS = pixels_of(20, 14)
PNG, JPEG, WEBP, GIF = (MODES[mode](PIXELS) for mode in ("rgb", "jpeg", "webp", "gif"))
FILES = {mode: make(PIXELS) for mode, make in MODES.items()}
BOMB = zlib.compress(bytes(100 << 20), 1)


@pytest.fixture(scope="module")
def images(make_images: MakeImages) -> Images:
    """Those of a family that reads each shape; an image may take two seconds of processor time."""
    return make_images(SMALL["fixed"], decode_ms=2_000)


def refusal(images: Images, data: bytes) -> str:
    """Returns the message for bytes that are refused, at any step; empty if they are served."""
    try:
        asyncio.run(images.decode(images.plan(EncodedImage(data), PATH)))
    except FieldInvalid as error:
        assert (error.path, error.reason) == (PATH, "FIELD_INVALID")
        assert not ADDRESS.search(error.message), error.message
        return error.message
    return ""


def tiles_of(images: Images, data: bytes) -> Pixels:
    tiles = asyncio.run(images.decode(images.plan(EncodedImage(data), PATH)))
    return np.frombuffer(tiles.data, np.uint8).reshape(-1, tiles.height, tiles.width, 3)


@pytest.mark.parametrize(
    "data", [b"", b"\x89", b"A photo of a cat.", b"%PDF-1.7\n", b"PK\x03\x04cat.png", b"RIFF\x04\0\0\0AVI "]
)
def test_vis_5_other_bytes_are_no_image(data: bytes, images: Images) -> None:
    expected = f"is no PNG, JPEG, WebP or GIF, but {len(data)} other bytes; send PNG, JPEG, WebP or GIF"
    assert refusal(images, data) == expected


SVG = b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- a -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'
OTHERS = {
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0",
    "AVIF": saved(Image.fromarray(PIXELS), "AVIF") if "AVIF" in Image.registered_extensions().values() else b"",
    "TIFF": saved(Image.fromarray(PIXELS), "TIFF"),
    "BMP": saved(Image.fromarray(PIXELS[..., :3]), "BMP"),
    "SVG": SVG,
    "JPEG 2000": saved(Image.fromarray(PIXELS), "JPEG2000"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_vis_5_a_format_that_is_not_read_is_named(name: str, images: Images) -> None:
    assert refusal(images, OTHERS[name]) == f"is {name}; send PNG, JPEG, WebP or GIF"


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (SIGNATURE + JPEG, "PNG"),
        (b"RIFF" + struct.pack("<I", 4 + len(JPEG)) + b"WEBP" + JPEG, "WebP"),
        (b"GIF89a" + PNG, "GIF"),
        (b"\xff\xd8\xff" + WEBP, "JPEG"),
    ],
)
def test_vis_5_one_format_in_anothers_header_is_damaged(data: bytes, format: str, images: Images) -> None:
    assert refusal(images, data).startswith(f"is a damaged {format}: ")


@pytest.mark.parametrize("mode", FILES)
def test_vis_5_no_truncation_is_an_image(mode: str) -> None:
    data = FILES[mode]
    assert read_header(data).upright == (20, 14) or "orientation" in mode
    for n_bytes in range(len(data)):
        with pytest.raises(NotAnImage):
            read_header(data[:n_bytes])


def change(data: bytes, rng: random.Random) -> bytes:
    """Flips, removes, repeats or replaces bytes at random places."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place, n = rng.randrange(len(changed)), rng.choice((1, 1, 2, 4, 30))
        kind = rng.randrange(4)
        if kind == 0:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[place : place + n] = rng.randbytes(n)
        elif kind == 2:
            changed[place : place + n] = rng.choice((b"\0", b"\xff", b"\x7f")) * n
        elif len(changed) > 2 * n:
            changed[place:place] = changed[place : place + n]
    return mended(bytes(changed)) if rng.random() < 0.5 else bytes(changed)


def mended(data: bytes) -> bytes:
    """Corrects the checksums of a PNG, so that a change reaches what they protect."""
    at, found = 8, data[:8]
    while data.startswith(SIGNATURE) and at + 12 <= len(data):
        length = min(int.from_bytes(data[at : at + 4], "big"), len(data) - at - 12)
        found += chunk(data[at + 4 : at + 8], data[at + 8 : at + 8 + length])
        at += length + 12
    return found + data[at:] if data.startswith(SIGNATURE) else data


def check_changed(images: Images, n_changed: int) -> None:
    """Each changed file is an image or refused, and no worker dies of one."""
    rng = random.Random(n_changed)
    names, kept = list(FILES), 0
    for place in range(n_changed):
        message = refusal(images, change(FILES[names[place % len(names)]], rng))
        assert "ended with status" not in message and "takes more" not in message
        kept += not message
    assert n_changed * 0.1 < kept < n_changed * 0.9


def test_vis_5_changed_bytes_are_an_image_or_refused(images: Images) -> None:
    check_changed(images, 2_000)


@pytest.mark.long
def test_vis_5_many_changed_bytes_are_images_or_refused(images: Images) -> None:
    check_changed(images, repetitions(100_000, 20_000))


MANY = 1 << 20
DIRECTORY = b"II*\0" + struct.pack("<IH", 8, 0xFFFF) + bytes(12 * 0xFFFF)
IN_MANY_PARTS = {
    "PNG chunks": SIGNATURE + header(1, 1) + chunk(b"tEXt") * MANY,
    "PNG directories": SIGNATURE + header(1, 1) + chunk(b"eXIf", DIRECTORY) * 9,
    "JPEG segments": b"\xff\xd8" + b"\xff\xe0\0\2" * MANY,
    "JPEG fill": b"\xff\xd8" + b"\xff" * MANY,
    "JPEG restarts": b"\xff\xd8" + b"\xff\xd0" * MANY,
    "WebP chunks": b"RIFF" + struct.pack("<I", 4 + 8 * MANY) + b"WEBP" + b"junk\0\0\0\0" * MANY,
    "GIF blocks": b"GIF89a\1\0\1\0\0\0\0" + b"\x21\xfe" + b"\1x" * MANY,
    "GIF extensions": b"GIF89a\1\0\1\0\0\0\0" + b"\x21\xf9\0" * MANY,
}


@pytest.mark.parametrize("name", IN_MANY_PARTS)
def test_vis_5_a_file_of_very_many_parts_is_not_read_to_its_end(name: str) -> None:
    with pytest.raises(NotAnImage, match="in more than 131072 parts"):
        read_header(IN_MANY_PARTS[name])


def test_vis_5_the_data_of_a_scan_are_passed_whatever_they_are() -> None:
    begin = JPEG.index(b"\xff\xda") + 14
    assert read_header(JPEG[:begin] + b"\xff\0\xff\xd0" * MANY + JPEG[-2:]).upright == (20, 14)


def test_vis_5_a_size_beyond_the_limits_is_refused_before_decoding(images: Images) -> None:
    big = file_of(header(65_535, 65_535), chunk(b"IDAT", zlib.compress(bytes(100))))
    assert refusal(images, big) == "is 65535 x 65535 pixels, more than 40000000 together (media.pixels)"
    assert refusal(images, file_of(header(1, 16_385), chunk(b"IDAT"))) == (
        "is 1 x 16385 pixels, more than 16384 on one side (media.side)"
    )


def test_vis_5_qwen_refuses_a_side_of_more_than_200_times_the_other(make_images: MakeImages) -> None:
    message = refusal(make_images(PUBLISHED["qwen"]), png(pixels_of(201, 1)[..., :3], RGB))
    assert message == "is 201 x 1 pixels; this model takes sides of 1 to 200 at most"


@pytest.mark.parametrize("kind", KINDS)
def test_vis_5_the_smallest_images_are_served(kind: str, make_images: MakeImages) -> None:
    images = make_images(SMALL[kind])
    for size in ((1, 1), (3, 2)):
        plan = images.plan(EncodedImage(png(pixels_of(*size)[..., :3], RGB)), PATH)
        tiles = asyncio.run(images.decode(plan))
        assert (tiles.width, tiles.height) == plan.reading.cut.tile
        assert len(tiles.data) == 3 * tiles.width * tiles.height * plan.reading.cut.n_tiles


def scans(n: int) -> bytes:
    """Returns a progressive JPEG whose last scan is repeated until there are n."""
    data = FILES["progressive"]
    begin, n_own = data.rindex(b"\xff\xda"), data.count(b"\xff\xda")
    return data[:begin] + data[begin:-2] * (n - n_own + 1) + data[-2:]


def test_vis_5_a_jpeg_of_many_scans_is_refused_before_decoding() -> None:
    assert read_header(scans(MOST_SCANS)).upright == (20, 14)
    for n in (MOST_SCANS + 1, 1_000):
        with pytest.raises(NotAnImage, match="is JPEG in more than 64 scans; save it with fewer"):
            read_header(scans(n))


BIG_DIRECTORY = b"II*\0" + struct.pack("<IH", 8, 0xFFFF) + struct.pack("<HHII", 0x9286, 7, 0xFFFFFFF0, 8) * 5_000
BOMBS = {
    "zTXt": png(PIXELS[..., :3], RGB, chunks=[chunk(b"zTXt", b"a\0\0" + BOMB)] * 4),
    "iTXt": png(PIXELS[..., :3], RGB, chunks=[chunk(b"iTXt", b"a\0\1\0\0\0" + BOMB)]),
    "iCCP": png(PIXELS[..., :3], RGB, chunks=[chunk(b"iCCP", b"a\0\0" + BOMB)]),
    "IDAT": file_of(header(20, 14), chunk(b"IDAT", BOMB)),
    "eXIf": png(PIXELS[..., :3], RGB, chunks=[chunk(b"eXIf", BIG_DIRECTORY)]),
    "Exif": saved(Image.fromarray(PIXELS[..., :3]), "JPEG", exif=b"Exif\0\0" + BIG_DIRECTORY),
    "WebP Exif": saved(Image.fromarray(PIXELS), "WEBP", exif=BIG_DIRECTORY),
}


@pytest.mark.parametrize("name", BOMBS)
def test_vis_5_vis_7_what_grows_when_unpacked_takes_little_time_and_memory(name: str, images: Images) -> None:
    """The worker's limits are 2 s and 64 MiB here; the data grow to 100 MiB."""
    message = refusal(images, BOMBS[name])
    assert "takes more" not in message and "status" not in message
    assert refusal(images, PNG) == ""


SHORT_ROWS, LONG_ROWS = rows_of(PIXELS[:5, :, :3]), rows_of(PIXELS[..., :3]) + rows_of(PIXELS[:1, :, :3])


def two_frames(data: bytes) -> bytes:
    """Returns a JPEG that states a second, larger size before its data."""
    begin = data.index(b"\xff\xc0")
    frame = bytearray(data[begin : begin + 19])
    frame[5:9] = struct.pack(">HH", 20_000, 20_000)
    return data[: begin + 19] + bytes(frame) + data[begin + 19 :]


def other_canvas(data: bytes) -> bytes:
    begin = data.index(b"VP8X") + 12
    return data[:begin] + (9).to_bytes(3, "little") * 2 + data[begin + 6 :]


DIFFERING = {
    "fewer rows": file_of(header(20, 14), chunk(b"IDAT", zlib.compress(SHORT_ROWS))),
    "more rows": file_of(header(20, 14), chunk(b"IDAT", zlib.compress(LONG_ROWS))),
    "20,000 squared": file_of(header(10, 10), chunk(b"IDAT", BOMB)),
    "two headers": file_of(header(10, 10), header(20, 14), chunk(b"IDAT", zlib.compress(rows_of(PIXELS[..., :3])))),
    "two frame headers": two_frames(JPEG),
    "a canvas of 10 x 10": other_canvas(FILES["orientation 8"]),
    "a frame beyond the screen": GIF[:6] + struct.pack("<HH", 10, 10) + GIF[10:],
}


@pytest.mark.parametrize("name", DIFFERING)
def test_vis_5_a_header_that_contradicts_the_data_is_refused(name: str, images: Images) -> None:
    assert re.match(
        "is a damaged (PNG|JPEG|WebP|GIF): .*(different sizes|one (frame )?header)", refusal(images, DIFFERING[name])
    )


@pytest.mark.parametrize(("format", "name"), [("PNG", "PNG"), ("WEBP", "WebP"), ("GIF", "GIF")])
def test_vis_5_several_frames_are_refused(format: str, name: str, images: Images) -> None:
    frames = [Image.fromarray(pixels_of(20, 14, seed)) for seed in range(2)]
    data = saved(frames[0], format, save_all=True, append_images=frames[1:])
    assert Image.open(io.BytesIO(data)).n_frames == 2
    assert refusal(images, data) == f"is {name} of several frames; send one frame"
    assert refusal(images, saved(frames[0], format, save_all=True)) == ""


CLEAR = np.zeros((14, 20, 4), np.uint8)
TRANSPARENT: dict[str, Callable[[], bytes]] = {
    "PNG": lambda: saved(Image.fromarray(CLEAR), "PNG"),
    "WebP": lambda: saved(Image.fromarray(CLEAR), "WEBP"),
    "GIF": lambda: saved(Image.new("P", (20, 14), 0), "GIF", transparency=0),
}


@pytest.mark.parametrize("name", TRANSPARENT)
def test_vis_5_what_is_transparent_is_white(name: str, images: Images) -> None:
    assert tiles_of(images, TRANSPARENT[name]()).min() == 255


CYCLIC = exif_of(1)[:-4] + struct.pack("<I", 8)
ODD_EXIF = {
    "0": exif_of(0),
    "9": exif_of(9),
    "4294967295": exif_of(0xFFFFFFFF, kind=LONG),
    "a cycle": CYCLIC,
    "no directory": b"II*\0\xff\xff\xff\xff",
    "cut": exif_of(6)[:15],
    "other bytes": b"Exif\0\0\0\0",
    "empty": b"",
}


@pytest.mark.parametrize("name", ODD_EXIF)
def test_vis_5_an_odd_orientation_turns_nothing(name: str, make_images: MakeImages) -> None:
    images = make_images(SMALL["qwen"])  # whose pixels depend on the shape

    def with_exif(exif: bytes) -> Pixels:
        return tiles_of(images, png(PIXELS[..., :3], RGB, chunks=[chunk(b"eXIf", exif)]))

    np.testing.assert_array_equal(with_exif(ODD_EXIF[name]), tiles_of(images, PNG))
    assert not np.array_equal(with_exif(exif_of(6, kind=SHORT)), tiles_of(images, PNG))


RAW = PIXELS[..., :3].tobytes()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (RawImage(20, 14, RAW[:-1]), "has 839 bytes; 20 x 14 pixels have 840"),
        (RawImage(20, 14, b""), "has 0 bytes; 20 x 14 pixels have 840"),
        (RawImage(0, 5, b""), "is 0 x 5 pixels; both must be at least 1"),
        (RawImage(-1, -5, bytes(15)), "is -1 x -5 pixels; both must be at least 1"),
        (RawImage(40_000, 40_000, RAW), "has 840 bytes; 40000 x 40000 pixels have 4800000000"),
        (RawImage(1, 16_385, bytes(3 * 16_385)), "is 1 x 16385 pixels, more than 16384 on one side (media.side)"),
    ],
)
def test_vis_5_raw_pixels_of_another_size_are_refused(raw: RawImage, message: str, images: Images) -> None:
    with pytest.raises(FieldInvalid) as caught:
        images.plan(raw, "image.raw.rgb")
    assert (caught.value.path, caught.value.message) == ("image.raw.rgb", message)


def test_vis_5_a_palette_without_colours_is_refused(images: Images) -> None:
    data = file_of(header(20, 14, colour=PALETTE), chunk(b"IDAT", zlib.compress(bytes(21 * 14))))
    assert refusal(images, data) in ("", "is damaged, or in a form of PNG that is not supported")


ENCODED = "iVBORw0KGgo="


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{ENCODED}",
        f"DATA:;BASE64,{ENCODED}",
        f"data:text/plain;charset=utf-8;base64,{ENCODED}",
        f"data:;base64,{ENCODED[:4]}\r\n{ENCODED[4:]}\n",
    ],
)
def test_vis_5_a_data_url_is_read(url: str) -> None:
    assert read_data_url(url, "url") == SIGNATURE


BAD_BASE64 = "has bytes that are not base64 of RFC 4648 with padding"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"data:image/png,{ENCODED}", "is a data: URL without ;base64,"),
        (f"data:image/png;base64;charset=utf-8,{ENCODED}", "is a data: URL without ;base64,"),
        (f"data:image/png;base64{ENCODED}", "is a data: URL without ;base64,"),
        (f"data:;base64,{ENCODED[:4]} {ENCODED[4:]}", BAD_BASE64),
        (f"data:;base64,{ENCODED.rstrip('=')}", BAD_BASE64),
        (f"data:;base64,{ENCODED}=", BAD_BASE64),
        (f"data:;base64,{ENCODED}AAAA", BAD_BASE64),
        ("data:;base64,iVBORw0KGg%3D%3D", BAD_BASE64),
        ("data:;base64,-_-_", BAD_BASE64),
        ("data:;base64,é", BAD_BASE64),
        (f"data:;base64,{'=' * (20 << 20)}", BAD_BASE64),
        *((url, "is no data: URL, and no other is fetched") for url in (
            "http://169.254.169.254/latest/meta-data", "https://example.com/cat.png", "file:///etc/passwd",
            "ftp://example.com/cat.png", "//example.com/cat.png", " data:;base64,AAAA", "", "cat.png",
        )),
    ],
)  # fmt: skip
def test_vis_5_another_url_is_refused_without_being_read(url: str, message: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        read_data_url(url, "messages[0].content[1].image_url.url")
    assert caught.value.path == "messages[0].content[1].image_url.url"
    assert caught.value.message.startswith(message) and len(caught.value.message) < 120


def test_vis_5_an_svg_in_a_data_url_is_named(images: Images) -> None:
    data = read_data_url("data:image/svg+xml;base64,PHN2ZyB4bWxucz0iIi8+", "url")
    assert refusal(images, data) == "is SVG; send PNG, JPEG, WebP or GIF"
