"""The images for which tests/data/pixels.json has the results of transformers: their pixels, sizes and layouts.

`python tests/parity/store_pixels.py` writes the table.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from imp_service.media import FixedSizes, Gemma4Sizes, Idefics3Sizes, ImageSizes, QwenSizes
from support.media.image_files import MODES

PATH = Path(__file__).resolve().parents[2] / "data" / "pixels.json"
LANCZOS, BILINEAR, BICUBIC = 1, 2, 3
HALF = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
# The numbers of SmolVLM2-500M, Qwen3-VL, Gemma 3 and Gemma 4.
PUBLISHED: dict[str, ImageSizes] = {
    "idefics3": Idefics3Sizes(
        patch_size=16, resample=LANCZOS, longest_edge=2048, tile_edge=512, scale_factor=4, **HALF
    ),
    "qwen": QwenSizes(patch_size=16, resample=BICUBIC, merge_size=2, min_pixels=65_536, max_pixels=16_777_216, **HALF),
    "fixed": FixedSizes(patch_size=14, resample=BILINEAR, width=896, height=896, scale_factor=4, **HALF),
    "gemma4": Gemma4Sizes(patch_size=16, resample=BICUBIC, pooling_kernel_size=3, max_soft_tokens=280, **HALF),
}
# Smaller numbers, so that hundreds of images take little time; ends of ranges that are no multiples.
SMALL: dict[str, ImageSizes] = {
    "idefics3": Idefics3Sizes(patch_size=4, resample=LANCZOS, longest_edge=226, tile_edge=56, scale_factor=2, **HALF),
    "qwen": QwenSizes(patch_size=14, resample=BICUBIC, merge_size=2, min_pixels=3_136, max_pixels=50_000, **HALF),
    "fixed": FixedSizes(patch_size=14, resample=BILINEAR, width=224, height=112, scale_factor=4, **HALF),
    "gemma4": Gemma4Sizes(patch_size=4, resample=BICUBIC, pooling_kernel_size=3, max_soft_tokens=70, **HALF),
}
KINDS = tuple(PUBLISHED)
N_SIZES, N_SIDES = 200, 500
REFUSED = "refused"
EDGES = [(1, 1), (3, 2), (2, 3), (1, 150), (150, 1), (56, 56), (224, 112), (112, 224), (226, 226), (57, 56), (211, 210)]
# Width, height and mode of images for the published numbers.
LARGE = [(640, 480, "jpeg"), (90, 1100, "rgba"), (512, 512, "rgb"), (1500, 1000, "progressive")]


@dataclass(frozen=True)
class PixelCase:
    width: int
    height: int
    mode: str


@cache
def pixel_cases() -> list[PixelCase]:
    """Returns images of 200 sizes; each mode has several."""
    rng = np.random.default_rng(1)
    drawn = np.exp(rng.uniform(np.log(4), np.log(400), (N_SIZES - len(EDGES), 2))).astype(int)
    sizes = [*EDGES, *(tuple(map(int, size)) for size in drawn)]
    names = list(MODES)
    return [PixelCase(*size, names[place % len(names)]) for place, size in enumerate(sizes)]


@cache
def sides() -> list[tuple[int, int]]:
    """Returns widths and heights from 1 to 16384."""
    rng = np.random.default_rng(2)
    drawn = np.exp(rng.uniform(0, np.log(16_384), (N_SIDES - len(EDGES), 2))).astype(int)
    return [*EDGES, *(tuple(map(int, size)) for size in drawn)]


def entries(part: str, kind: str) -> list[str]:
    """Returns the entries of the table, one for each image."""
    return " ".join(table()[part][kind]).split()


def short_digest(tiles: bytes) -> str:
    return hashlib.sha256(tiles).hexdigest()[:16]


@cache
def table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found
