"""Images for `imp bench --image`: files of PNG, made in memory, that the model's worker decodes."""

import itertools
import math
import random
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.local_request import no_images
from imp_service.core.bench import Picture, Pictures

if TYPE_CHECKING:
    from imp_service.core import CoreMediaSpan, LoadedModel

_NOISE = 0b111  # the bits of a colour that are random, about as many as in a photograph


def pictures_of(loaded: "LoadedModel") -> Pictures:
    """What makes images for a model. Raises CommandError if it reads none."""
    from imp_service.generation.errors import translating_text_errors
    from imp_service.generation.images import model_images
    from imp_service.generation.prompt_images import PromptImages, TokenPiece, grow_spans
    from imp_service.generation.text_side import build_tokenizer
    from imp_service.media import EncodedImage

    if loaded.model.vision is None:
        raise no_images(loaded.config, loaded.name)
    settings = loaded.config.settings
    tokenizer = build_tokenizer(loaded.metadata, settings)
    images = model_images(loaded.model.vision, settings.media, tokenizer, loaded.vision_name)
    reader, seeds = images.reader, itertools.count()

    @translating_text_errors()
    def make(width: int, height: int) -> Picture:
        reader.plan(EncodedImage(_png(width, height, b"")), "image")  # refuses a size before there are pixels of it
        plan = reader.plan(EncodedImage(_png(width, height, _pixels(width, height, next(seeds)))), "image")
        prompt = PromptImages(images, [plan])
        ids = tokenizer.encode_spans(list(prompt.layout_texts()), add_special_tokens=False)
        tokens = grow_spans([TokenPiece(ids, has_images=True)], prompt)

        def decode() -> "Sequence[CoreMediaSpan]":
            prompt.decode_here()
            return prompt.media

        return Picture(tokens, prompt.n_tokens, decode)

    return Pictures(images.cell_token, make, reader.close)


def _pixels(width: int, height: int, seed: int) -> bytes:
    """Smooth colours with some noise, in rows that each begin with their filter: none."""
    numbers, size = random.Random(seed), 3 * width
    wave = bytes(int(120 + 110 * math.sin(i // 3 / 97 + i % 3 + seed)) for i in range(size + 3 * height))
    mask = int.from_bytes(bytes([_NOISE]) * size)
    rows = []
    for first in range(0, 3 * height, 3):
        noise = int.from_bytes(numbers.randbytes(size)) & mask
        rows.append(b"\0" + (int.from_bytes(wave[first : first + size]) + noise).to_bytes(size))
    return b"".join(rows)


def _png(width: int, height: int, pixels: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(pixels, 1)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
