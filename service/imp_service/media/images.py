"""Images of prompts: what each costs and how it is written, before any pixel is decoded; then its tiles.

    plan = images.plan(EncodedImage(data), "messages[0].parts[1].image")   # cheap; checks all that a header tells
    plan.n_cells, plan.layout                                              # for the context's limit and the prompt
    tiles = await images.decode(plan)                                      # in the worker, or kept from before

Errors name the field that the caller gives: `FieldInvalid` for what was sent, `ImagesRefused` for what may pass later.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from imp_service.media.decoder import ImageDecoder, ImageReading, Tiles
from imp_service.media.errors import ImageSettingsInvalid
from imp_service.media.formats import Header, NotAnImage
from imp_service.media.layout import Layout, LayoutWords, layout_of, needs_chat, words_of
from imp_service.media.limits import MediaLimits
from imp_service.media.sizes import ImageSizes, UnfitShape
from imp_service.media.source import ImageSource
from imp_service.text.errors import FieldInvalid

FIXED_TOKENS = "the images of this model have a fixed number of tokens"


@dataclass(frozen=True, slots=True)
class CellBounds:
    """What a request says about the cells of an image."""

    max_cells: int | None = None
    # The field of `max_cells`; empty: that of the image.
    path: str = ""
    # In place of the processor's own.
    numbers: Mapping[str, int] = field(default_factory=dict)


NO_BOUNDS = CellBounds()


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """One image that is not decoded yet: what it costs, and how it is written."""

    # The field of the request, for errors.
    path: str
    source: ImageSource = field(repr=False)
    reading: ImageReading
    # Replaces the placeholder of the chat template.
    layout: Layout
    # SHA-256 of the bytes and of all that decides the pixels: equal digests have equal tiles.
    digest: bytes

    @property
    def n_cells(self) -> int:
        return self.reading.cut.n_cells


class Images:
    """Plans and decodes the images of one model. Any thread may plan; one event loop decodes."""

    def __init__(self, sizes: ImageSizes, limits: MediaLimits) -> None:
        """Raises `ImageSettingsInvalid` if no image of the family fits the limits."""
        least = sizes.least_max_cells
        if least is not None and limits.image_tokens < least:
            raise ImageSettingsInvalid("media.image_tokens", f"is {limits.image_tokens}, expected {least} at least")
        self.words: LayoutWords = words_of(sizes)
        # Only the chat template writes what belongs around an image.
        self.needs_chat = needs_chat(sizes)
        self._sizes = sizes
        self.limits = limits
        self._decoder = ImageDecoder(decode_ms=limits.decode_ms)
        self._libraries: Mapping[str, str] = {}
        self._kept = _KeptTiles(limits.waiting_bytes)
        # One thread, as there is one worker: an image that is asked for twice is found the second time.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="images")

    def start(self) -> None:
        """Starts the worker, so that it is ready when it is needed. Does not wait for it."""
        self._decoder.start()

    def libraries(self, path: str = "images") -> Mapping[str, str]:
        """The versions of the libraries that decide pixels. The first call starts the worker, and waits for it.

        Raises `ImagesRefused` at `path` if it does not start.
        """
        self._libraries = self._libraries or self._decoder.libraries(path)
        return self._libraries

    def plan(self, source: ImageSource, path: str, bounds: CellBounds = NO_BOUNDS) -> ImagePlan:
        """Reads the header alone. `bounds` are those of the request.

        Raises `FieldInvalid` at `path`, or at that of the bound. Takes time that grows with the bytes: it digests them.
        """
        sizes = self._sizes_within(bounds, path)
        allowed = self._allowed_cells(sizes, bounds, path)
        try:
            header = source.header()
            self._check_size(header)
            cut = sizes.cut(*header.upright, allowed)
        except (NotAnImage, UnfitShape) as error:
            raise FieldInvalid(path, str(error)) from None
        reading = ImageReading(header, cut, sizes.resample)
        return ImagePlan(path, source, reading, layout_of(sizes, cut), self._digest(source, sizes, reading, path))

    @property
    def replaceable(self) -> Sequence[str]:
        """The numbers of the image processor that a request may replace."""
        return self._sizes.replaceable

    def check_numbers(self, numbers: Mapping[str, int]) -> None:
        """Raises `ImageSettingsInvalid` for a number that a request may not have, which is one of `replaceable`."""
        self._sizes.replaced(numbers, self.limits.image_tokens)

    async def decode(self, plan: ImagePlan) -> Tiles:
        """The pixels of an image, which the worker decodes if they are not kept from before.

        Raises `FieldInvalid` for an image that its header did not betray, and `ImagesRefused` if the worker dies.
        """
        import asyncio  # the library and its commands do without

        return await asyncio.get_running_loop().run_in_executor(self._threads, self._decode, plan)

    def decode_here(self, plan: ImagePlan) -> Tiles:
        """The same on a thread that may wait."""
        return self._threads.submit(self._decode, plan).result()

    @property
    def most_cells(self) -> int:
        """The most that a request may ask for where images have any size, and else the most that an image takes."""
        return self._sizes.own_cells if self._sizes.least_max_cells is None else self.limits.image_tokens

    def few_cells(self, n_cells: int) -> int | None:
        """The bound of an image that may take so many cells at most, or near it; None if images have fixed sizes."""
        least = self._sizes.least_max_cells
        return None if least is None else max(least, min(n_cells, self.limits.image_tokens))

    def close(self) -> None:
        """Ends the worker, and each call of decode()."""
        self._decoder.close()
        self._threads.shutdown()

    def _decode(self, plan: ImagePlan) -> Tiles:
        tiles = self._kept.find(plan.digest)
        if tiles is None:
            tiles = self._decoder.decode(plan.path, plan.digest, plan.source.data, plan.reading)
            self._kept.keep(plan.digest, tiles)
        return tiles

    def _sizes_within(self, bounds: CellBounds, path: str) -> ImageSizes:
        if not bounds.numbers:
            return self._sizes
        try:
            return self._sizes.replaced(bounds.numbers, self.limits.image_tokens)
        except ImageSettingsInvalid as error:
            raise FieldInvalid(path, f"{error.path} {error.message}") from None

    def _allowed_cells(self, sizes: ImageSizes, bounds: CellBounds, path: str) -> int:
        least, most, wanted = sizes.least_max_cells, self.limits.image_tokens, bounds.max_cells
        if wanted is None:
            return sizes.own_cells if least is None else min(sizes.own_cells, most)
        if least is None:
            raise FieldInvalid(bounds.path or path, f"is {wanted}; {FIXED_TOKENS}")
        if not least <= wanted <= most:
            raise FieldInvalid(bounds.path or path, f"is {wanted}, expected {least} to {most}")
        return min(wanted, sizes.own_cells) if bounds.numbers else wanted

    def _check_size(self, header: Header) -> None:
        size, limits = f"is {header.width} x {header.height} pixels", self.limits
        if header.width * header.height > limits.pixels:
            raise NotAnImage(f"{size}, more than {limits.pixels} together (media.pixels)")
        if max(header.width, header.height) > limits.side:
            raise NotAnImage(f"{size}, more than {limits.side} on one side (media.side)")

    def _digest(self, source: ImageSource, sizes: ImageSizes, reading: ImageReading, path: str) -> bytes:
        how = {"reading": asdict(reading), "family": type(sizes).__name__, "numbers": asdict(sizes)}
        text = json.dumps({**how, "libraries": self.libraries(path)}, sort_keys=True)
        found = hashlib.sha256(hashlib.sha256(text.encode()).digest())
        found.update(source.data)
        return found.digest()


class _KeptTiles:
    """Decoded tiles by their digests, the last used ones within a number of bytes. Any thread may call."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._n_bytes = 0
        self._tiles: OrderedDict[bytes, Tiles] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, digest: bytes) -> Tiles | None:
        with self._lock:
            if digest in self._tiles:
                self._tiles.move_to_end(digest)
            return self._tiles.get(digest)

    def keep(self, digest: bytes, tiles: Tiles) -> None:
        with self._lock:
            if digest in self._tiles or len(tiles.data) > self._most_bytes:
                return
            self._tiles[digest] = tiles
            self._n_bytes += len(tiles.data)
            while self._n_bytes > self._most_bytes:
                self._n_bytes -= len(self._tiles.popitem(last=False)[1].data)
