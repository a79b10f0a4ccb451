"""Makes weights as in published gpt-oss checkpoints: pairs of 4-bit floats, and exponents in another tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.safetensors_writer import write_tensors

# From the type's definition (OCP Microscaling Formats, E2M1).
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
CONFIG = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
Parts = dict[str, NDArray[Any]]


def random_parts(name: str, shape: tuple[int, ...]) -> Parts:
    """Returns both tensors of weights [experts, rows, elements of a row]; each block has a random exponent."""
    rng = np.random.default_rng([len(name), *shape])
    blocks = (*shape[:-1], shape[-1] // 32)
    return {
        f"{name}_blocks": rng.integers(0, 256, (*blocks, 16), np.uint8),
        f"{name}_scales": rng.integers(122, 126, blocks, np.uint8),
    }


def values_of(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    pairs = np.stack([blocks & 15, blocks >> 4], axis=-1)
    weights = LEVELS[pairs].reshape(*scales.shape, 32) * np.exp2(scales[..., None] - 127.0)
    values: NDArray[np.float32] = weights.reshape(*scales.shape[:-1], -1).astype(np.float32)
    return values


def in_gguf(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns rows of GGUF blocks: the exponent, and bytes with the codes of weights i and i + 16."""
    levels = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    halves = levels[..., :16] | levels[..., 16:] << 4
    rows = np.concatenate([scales[..., None], halves], axis=-1)
    return np.ascontiguousarray(rows.reshape(*scales.shape[:-1], -1))


def from_gguf(rows: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns both tensors of rows of GGUF blocks: the inverse of `in_gguf`."""
    blocks = rows.reshape(*rows.shape[:-1], -1, 17)
    scales, halves = blocks[..., 0], blocks[..., 1:]
    codes = np.concatenate([halves & 15, halves >> 4], axis=-1)
    return codes[..., ::2] | codes[..., 1::2] << 4, np.ascontiguousarray(scales)


def write(folder: Path, config: dict[str, Any], tensors: Parts) -> Path:
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": CONFIG}))
    return folder
