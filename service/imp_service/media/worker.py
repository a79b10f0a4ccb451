"""The program that decodes images, in a separate process that the kernel ends at its limits.

Run as a file, with the folder of Pillow. It imports nothing of imp, so that it starts fast and stays small. Once it has
started it can open no file and no socket: the kernel gives it no further descriptor. `process/worker_process.py`
describes its messages. Its errors are words of its own, since Pillow's have addresses, text and paths.
"""

from __future__ import annotations

import codecs
import copy
import ctypes
import io
import json
import os
import resource
import select
import signal
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# The worker ends after this long without a request; the server starts another one when it needs it.
_IDLE_SECONDS = 60
# What earlier images may leave in the allocator, such as a block of Pillow's; above it, a new worker takes over.
_LEFTOVER_BYTES = 32 << 20
_PIPE_BYTES = 1 << 16
# A slice of compressed bytes, which grow a thousandfold at most.
_COMPRESSED_BYTES = 1 << 12
_CODECS = ("ascii", "latin-1", "utf-8", "utf-16")
# An interlaced PNG: first column and row of each pass, and the steps to the next ones.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the colour type of a PNG


class _Differs(Exception):
    """The file has more or fewer pixels than its header says."""


def _png_bytes(header: bytes) -> int:
    """The bytes that the pixels of a PNG have before they are compressed; each row begins with its filter."""
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    bits = header[8] * _SAMPLES[header[9]]
    passes = _PASSES if header[12] else ((0, 0, 1, 1),)
    sides = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    return sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sides if columns > 0)


def _check_png(data: bytes) -> None:
    """Pillow leaves rows black that the file lacks, and ignores those that are too many."""
    inflate = zlib.decompressobj()
    at, expected, n_bytes = 8, 0, 0
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        begin, at = at + 8, at + length + 12
        if kind == b"IHDR":
            expected = _png_bytes(data[begin : begin + length])
        elif kind == b"IDAT":
            for place in range(begin, begin + length, _COMPRESSED_BYTES):
                n_bytes += len(inflate.decompress(data[place : min(place + _COMPRESSED_BYTES, begin + length)]))
                if n_bytes > expected:
                    raise _Differs
        elif kind == b"IEND":
            break
    if n_bytes != expected:
        raise _Differs


class _Decoder:
    """Pillow, with everything loaded that it would load later."""

    def __init__(self) -> None:
        from PIL import GifImagePlugin, Image, ImagePalette, JpegImagePlugin, PngImagePlugin, WebPImagePlugin
        from PIL import TiffImagePlugin, features  # isort: skip

        self._image = Image
        # The server has checked the size, against a limit of its own.
        Image.MAX_IMAGE_PIXELS = None
        self._plugins: Mapping[str, Any] = {
            "PNG": PngImagePlugin.PngImageFile,
            "JPEG": JpegImagePlugin.JpegImageFile,
            "WebP": WebPImagePlugin.WebPImageFile,
            "GIF": GifImagePlugin.GifImageFile,
        }
        # What Pillow imports only for some images.
        self._kept = (ImagePalette, TiffImagePlugin, copy)
        for name in _CODECS:
            codecs.lookup(name)
        # A warning would read the source of the line that it names.
        warnings.simplefilter("ignore")
        names = ("pil", "libjpeg_turbo", "jpg", "webp", "zlib", "zlib_ng")
        self.libraries = {name: str(features.version(name)) for name in names}

    def tiles(self, request: Mapping[str, Any], data: bytes) -> list[bytes]:
        """The pixels of each tile, and of the overview after them."""
        image = self._rgb(self._upright(self._stored(request, data), request["orientation"]))
        for step in request["steps"]:
            image = image.resize(tuple(step), request["resample"])
        (rows, columns), (width, height) = request["tiles"], request["tile"]
        corners = [(column * width, row * height) for row in range(rows) for column in range(columns)]
        found = [image.crop((x, y, x + width, y + height)).tobytes() for x, y in corners]
        if request["has_overview"]:
            found.append(image.resize((width, height), request["resample"]).tobytes())
        return found

    def _stored(self, request: Mapping[str, Any], data: bytes) -> Any:
        size = tuple(request["size"])
        if request["format"] == "raw":
            return self._image.frombytes("RGB", size, data)
        if request["format"] == "PNG":
            _check_png(data)
        # Image.open() would try plugins that nobody asked for.
        file = self._plugins[request["format"]](io.BytesIO(data))
        if file.size == size:
            file.load()
        if file.size != size:
            raise _Differs
        # Without what the plugin holds: the canvases of libwebp are larger than the image.
        return file.copy()

    def _upright(self, image: Any, orientation: int) -> Any:
        turn = self._image.Transpose
        turns = {
            2: turn.FLIP_LEFT_RIGHT,
            3: turn.ROTATE_180,
            4: turn.FLIP_TOP_BOTTOM,
            5: turn.TRANSPOSE,
            6: turn.ROTATE_270,
            7: turn.TRANSVERSE,
            8: turn.ROTATE_90,
        }
        return image.transpose(turns[orientation]) if orientation in turns else image

    def _rgb(self, image: Any) -> Any:
        """Transparent pixels on white, as the reference processors do."""
        if image.mode == "I;16":
            # Pillow would clip the 16 bits to 8, and most of the image to white.
            return self._image.frombytes("L", image.size, image.tobytes()[1::2]).convert("RGB")
        if "A" in image.getbands() or image.info.get("transparency") is not None:
            image = image if image.mode == "RGBA" else image.convert("RGBA")
            white = self._image.new("RGBA", image.size, (255, 255, 255, 255))
            image = self._image.alpha_composite(white, image)
        return image if image.mode == "RGB" else image.convert("RGB")


class _Memory:
    """The address space of this process."""

    def __init__(self) -> None:
        self._counts = os.open("/proc/self/statm", os.O_RDONLY)
        # The kernel gives no descriptor of this number or above, and those below are taken.
        n_open = self._counts + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_open, n_open))
        # Only glibc has it.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._at_start = self._mapped()

    def limit(self, n_bytes: int) -> None:
        """Allows so many bytes beyond those at the start, or fewer if the server itself was started with a limit."""
        self._set(self._at_start + n_bytes)

    def unlimit(self) -> None:
        """For the next request, whose image is not read yet."""
        self._set(resource.RLIM_INFINITY)

    def leftover(self) -> int:
        """Bytes beyond those at the start that earlier images left."""
        if self._trim is not None:
            self._trim(0)
        return self._mapped() - self._at_start

    def _set(self, limit: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        is_lower = hard == resource.RLIM_INFINITY or (limit != resource.RLIM_INFINITY and limit < hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit if is_lower else hard, hard))

    def _mapped(self) -> int:
        return int(os.pread(self._counts, 100, 0).split()[0]) * resource.getpagesize()


def _answer(decoder: _Decoder, memory: _Memory, request: Mapping[str, Any], data: bytes) -> tuple[str, list[bytes]]:
    """An error, or empty, and the tiles."""
    memory.limit(request["memory_bytes"])
    # By default these signals end the process, even while native code runs.
    signal.setitimer(signal.ITIMER_PROF, request["cpu_seconds"])
    signal.setitimer(signal.ITIMER_REAL, request["wall_seconds"])
    try:
        return "", decoder.tiles(request, data)
    except MemoryError:
        return "memory", []
    except _Differs:
        return "differs", []
    except Exception:
        return "damaged", []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        memory.unlimit()


def _requests() -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """Ends if no request comes for a while, and with the server."""
    pending = bytearray()
    while True:
        while (n_head := pending.find(b"\n") + 1) == 0:
            if not select.select([0], [], [], _IDLE_SECONDS)[0] or not (part := os.read(0, _PIPE_BYTES)):
                return
            pending += part
        head = json.loads(pending[:n_head])
        end = n_head + head["body_bytes"]
        while len(pending) < end:
            if not (part := os.read(0, _PIPE_BYTES)):
                return
            pending += part
        body, pending = bytes(memoryview(pending)[n_head:end]), pending[end:]
        yield head, body


def _write(head: Mapping[str, Any], parts: list[bytes]) -> None:
    line = json.dumps({**head, "body_bytes": sum(map(len, parts))}).encode() + b"\n"
    for part in (line, *parts):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(1, rest) :]


def _main(folder: str) -> None:
    # A terminal and systemd send these to every process of a server, which then drains. Its end closes our stdin.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGALRM, signal.SIGPROF):
        # A server ignores SIGALRM, and its children inherit that.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    sys.path.append(folder)
    decoder = _Decoder()
    memory = _Memory()
    _write({"libraries": decoder.libraries}, [])
    for request, data in _requests():
        error, tiles = _answer(decoder, memory, request, data)
        _write({"error": error}, tiles)
        tiles.clear()
        if error == "memory" or memory.leftover() > _LEFTOVER_BYTES:
            return


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If a container runs out of memory, the kernel kills this process first.
    Path("/proc/self/oom_score_adj").write_text("1000")
    _main(sys.argv[1])
