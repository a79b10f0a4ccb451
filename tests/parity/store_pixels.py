"""Writes tests/data/pixels.json: what the image processors of transformers make of the images of the tests.

    python tests/parity/store_pixels.py

`tests/service/media` compares imp with the table, without transformers. `test_store_pixels.py` computes it again.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.gemma4.image_processing_pil_gemma4 import (
    Gemma4ImageProcessorPil,
    get_aspect_ratio_preserving_size,
)
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.smolvlm.image_processing_pil_smolvlm import (
    SmolVLMImageProcessorPil,
    get_resize_output_image_size,
)
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from imp_service.media import FixedSizes, Gemma4Sizes, Idefics3Sizes, ImageSizes, QwenSizes
from support.media.image_files import MODES, pixels_of
from support.media.pixel_cases import KINDS, LARGE, PATH, PUBLISHED, REFUSED, SMALL, pixel_cases, short_digest, sides

RAW = {"do_rescale": False, "do_normalize": False}
# Rows and columns of tiles; none for an image of one tile.
GRIDS = [(0, 0), (1, 2), (2, 1), (3, 4), (4, 4)]
N_CELLS = 2


def reference_image(data: bytes) -> Image.Image:
    """Returns an image as transformers loads it, except that 16 bits of gray become 8 by their high bytes."""
    image: Image.Image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode == "I;16":
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def processor_of(sizes: ImageSizes) -> Any:
    if isinstance(sizes, Idefics3Sizes):
        edges = {"size": {"longest_edge": sizes.longest_edge}, "max_image_size": {"longest_edge": sizes.tile_edge}}
        return SmolVLMImageProcessorPil(resample=sizes.resample, **edges, **RAW)
    if isinstance(sizes, QwenSizes):
        area = {"shortest_edge": sizes.min_pixels, "longest_edge": sizes.max_pixels}
        return Qwen2VLImageProcessorPil(resample=sizes.resample, patch_size=sizes.patch_size, size=area, **RAW)
    if isinstance(sizes, FixedSizes):
        size = {"height": sizes.height, "width": sizes.width}
        return Gemma3ImageProcessorPil(resample=sizes.resample, size=size, **RAW)
    assert isinstance(sizes, Gemma4Sizes)
    tokens = {"max_soft_tokens": sizes.max_soft_tokens, "pooling_kernel_size": sizes.pooling_kernel_size}
    return Gemma4ImageProcessorPil(resample=sizes.resample, patch_size=sizes.patch_size, **tokens, **RAW)


def reference_tiles(sizes: ImageSizes, image: Image.Image) -> NDArray[np.uint8]:
    """Returns the tiles [n, height, width, 3] that the processor hands on, out of the order of its patches."""
    made = processor_of(sizes)(image, return_tensors="np")
    values = np.asarray(made["pixel_values"])
    if isinstance(sizes, QwenSizes):
        _, rows, columns = made["image_grid_thw"][0]
        # Each patch stands twice, once for each of two equal frames.
        parts = values.reshape(rows // 2, columns // 2, 2, 2, 3, 2, sizes.patch_size, sizes.patch_size)
        ordered = parts[:, :, :, :, :, 0].transpose(0, 2, 5, 1, 3, 6, 4)
        tiles = ordered.reshape(1, rows * sizes.patch_size, columns * sizes.patch_size, 3)
    elif isinstance(sizes, Gemma4Sizes):
        columns, rows = made["image_position_ids"][0].max(axis=0) + 1
        parts = values[0, : rows * columns].reshape(rows, columns, sizes.patch_size, sizes.patch_size, 3)
        tiles = parts.transpose(0, 2, 1, 3, 4).reshape(1, rows * sizes.patch_size, columns * sizes.patch_size, 3)
    else:
        tiles = np.moveaxis(values.reshape(-1, *values.shape[-3:]), 1, 3)
    exact = np.ascontiguousarray(tiles).astype(np.uint8)
    assert np.array_equal(exact, tiles)
    return exact


def reference_digest(sizes: ImageSizes, width: int, height: int, mode: str) -> str:
    image = reference_image(MODES[mode](pixels_of(width, height)))
    return short_digest(reference_tiles(sizes, image).tobytes())


def reference_sides(kind: str, width: int, height: int) -> list[int]:
    """Returns the last width and height, and for tiles those of the first step; nothing if the shape is refused."""
    sizes = PUBLISHED[kind]
    if isinstance(sizes, QwenSizes):
        try:
            return list(smart_resize(height, width, 32, sizes.min_pixels, sizes.max_pixels))[::-1]
        except ValueError:
            return []
    if isinstance(sizes, Gemma4Sizes):
        cells = sizes.max_soft_tokens * sizes.pooling_kernel_size**2
        return list(get_aspect_ratio_preserving_size(height, width, sizes.patch_size, cells, 3))[::-1]
    assert isinstance(sizes, Idefics3Sizes)
    first = get_resize_output_image_size(SimpleNamespace(shape=(3, height, width)), sizes.longest_edge)
    unresized = SimpleNamespace(resize=lambda image, size, resample: size)
    image = SimpleNamespace(shape=(3, *first))
    last = SmolVLMImageProcessorPil.resize_for_vision_encoder(unresized, image, sizes.tile_edge)
    return [last.width, last.height, first[1], first[0]]


def reference_layouts() -> dict[str, list[str]]:
    """Returns what the processors write for an image, with few cells in a tile."""
    words = ("<fake_token_around_image>", "<image>", "<global-img>")
    tiled = [get_image_prompt_string(*grid, N_CELLS, *words) for grid in GRIDS]
    older = SimpleNamespace(
        fake_image_token="<fake_token_around_image>", global_image_tag="<global-img>", image_token="<image>",
        image_seq_len=N_CELLS,
    )  # fmt: skip
    for grid, text in zip(GRIDS, tiled, strict=True):
        rows_and_columns = {"rows": [[grid[0]]], "cols": [[grid[1]]]}
        assert Idefics3Processor.replace_image_token(older, rows_and_columns, 0) == text
    gemma4 = SimpleNamespace(boi_token="<|image>", eoi_token="<image|>", image_token="<|image|>")
    framed = Gemma4Processor.replace_image_token(gemma4, {"num_soft_tokens_per_image": [N_CELLS]}, 0)
    return {"idefics3": tiled, "gemma4": [framed], "fixed": [gemma3_layout()]}


def gemma3_layout() -> str:
    """Returns what the processor of Gemma 3 writes, with a tokenizer that knows its three tokens alone."""
    names = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    library = Tokenizer(WordLevel({"<unk>": 0, **{text: place for place, text in enumerate(names.values(), 1)}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, extra_special_tokens=names)
    return str(Gemma3Processor(Gemma3ImageProcessorPil(), tokenizer, image_seq_length=N_CELLS).full_image_sequence)


def lines(words: Iterable[str]) -> list[str]:
    return textwrap.wrap(" ".join(words), 110)


def results() -> dict[str, Any]:
    """Returns the table."""
    return {
        "made_by": {name: importlib.metadata.version(name) for name in ("transformers", "pillow")},
        "digests": {
            kind: lines(reference_digest(SMALL[kind], each.width, each.height, each.mode) for each in pixel_cases())
            for kind in KINDS
        },
        "large_digests": {kind: lines(reference_digest(PUBLISHED[kind], *each) for each in LARGE) for kind in KINDS},
        "sides": {
            kind: lines(",".join(map(str, reference_sides(kind, *each))) or REFUSED for each in sides())
            for kind in KINDS
            if kind != "fixed"
        },
        "layouts": reference_layouts(),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(results(), indent=1) + "\n")
