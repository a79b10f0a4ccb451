"""Random weight matrices of every type as bytes of a file, with the values that the `gguf` package decodes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import gguf
import numpy as np
from gguf import quants
from numpy.typing import NDArray

from support.kernels.block_scales import QUANTIZED_TYPES, set_scales

FLOAT_TYPES = ["f32", "f16", "bf16"]
WEIGHT_TYPES = [*FLOAT_TYPES, *QUANTIZED_TYPES]


@dataclass(frozen=True)
class Weight:
    dtype: str
    file: NDArray[np.uint8]  # flat, row by row
    values: NDArray[np.float32]  # [n, k]

    @property
    def n(self) -> int:
        return self.values.shape[0]


def block_of(dtype: str) -> tuple[int, int]:
    """Returns the elements and bytes of a block."""
    if dtype == "f8_e4m3":
        return 64, 68
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype.upper()]]


def e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decodes E4M3 from its definition, because the `gguf` package does not support it."""
    exponents, mantissas = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    sizes = np.ldexp(mantissas + np.float32(8) * (exponents > 0), np.maximum(exponents, 1) - 10)
    sizes[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes >> 7, -sizes, sizes).astype(np.float32)


def decode(dtype: str, file: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    if dtype == "f32":
        return file.view(np.float32).reshape(n, k)
    if dtype == "f8_e4m3":
        blocks = file.reshape(-1, 68)
        return (np.ascontiguousarray(blocks[:, :4]).view(np.float32) * e4m3(blocks[:, 4:])).reshape(n, k)
    with np.errstate(all="ignore"):
        values = quants.dequantize(file.reshape(n, -1), gguf.GGMLQuantizationType[dtype.upper()])
    return np.ascontiguousarray(values.reshape(n, k), np.float32)


@functools.lru_cache(maxsize=64)
def random_weight(dtype: str, n: int, k: int, seed: int = 0) -> Weight:
    """Returns normal values for float types; otherwise random integers with scales of both signs and several sizes."""
    rng = np.random.default_rng([seed, WEIGHT_TYPES.index(dtype), n, k])
    if dtype in FLOAT_TYPES:
        values = rng.normal(0, 0.5, (n, k)).astype(np.float32)
        if dtype == "f32":
            file = values.view(np.uint8).ravel()
        elif dtype == "f16":
            file = values.astype(np.float16).view(np.uint8).ravel()
        else:
            file = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).ravel()
    else:
        elements, n_bytes = block_of(dtype)
        blocks = rng.integers(0, 256, (n * k // elements, n_bytes), dtype=np.uint8)
        set_scales(dtype, blocks, rng, (0.002, 0.02), signs=True)
        file = blocks.ravel()
    return Weight(dtype, file, decode(dtype, file, n, k))


def random_rows(m: int, k: int, seed: int = 0) -> NDArray[np.float32]:
    """Returns activations whose rows differ in magnitude."""
    rng = np.random.default_rng([seed, m, k])
    return (rng.normal(0, 1, (m, k)) * np.exp(rng.normal(0, 1, (m, 1)))).astype(np.float32)


# The offset of the minimum's float16, for types that add a minimum to each element.
MIN_OFFSETS = {"q4_1": 2, "q5_1": 2, "q2_k": 82, "q4_k": 2, "q5_k": 2}


def magnitudes(weight: Weight) -> NDArray[np.float64]:
    """Returns the magnitudes of the summed terms: the code times its scale, and the minimum, which may cancel."""
    if weight.dtype not in MIN_OFFSETS:
        return np.abs(weight.values.astype(np.float64))
    blocks = weight.file.reshape(-1, block_of(weight.dtype)[1]).copy()
    offset = MIN_OFFSETS[weight.dtype]
    blocks[:, offset : offset + 2] = 0
    scaled = decode(weight.dtype, blocks.ravel(), *weight.values.shape).astype(np.float64)
    return np.abs(scaled) + np.abs(scaled - weight.values)
