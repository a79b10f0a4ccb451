"""Runs matrix kernels of the GPU on arrays: rows of x in each format, their exact values, and error bounds of sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imp_service import _testing as core
from support.kernels.weights import MIN_OFFSETS, Weight, block_of, magnitudes
from support.oracles import tolerances

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Float64s = NDArray[np.float64]

INTEGER_TYPES = ["q8_0", "q4_0", "q4_k", "q5_k", "q6_k"]
# Types whose scale is rounded to float16 before the weight is: a product of two numbers, or one of more bits.
ROUNDED_SCALES = ["q4_k", "q5_k", "q6_k", "f8_e4m3"]
# The format of x that each type's kernels read.
FORMATS = {
    **dict.fromkeys(INTEGER_TYPES, "q8_rows"),
    "f8_e4m3": "f16_even_odd",
    "f16": "f16_rows",
    "bf16": "bf16_rows",
}
TILE_TYPES = list(FORMATS)

BLOCK_INPUT = np.dtype([("scale", "<f4"), ("half_sums", "<i2", 2)])


@dataclass(frozen=True)
class Input:
    bytes: Bytes  # rows, further apart than they are long
    exact: Float64s  # the values that they encode

    def rows(self, which: slice | list[int]) -> Input:
        return Input(np.ascontiguousarray(self.bytes[which]), self.exact[which])


def with_gaps(rows: Bytes) -> Bytes:
    """Returns rows that begin at multiples of 16 bytes; kernels must ignore the bytes between them."""
    gap = 16 + -rows.shape[1] % 16
    return np.concatenate([rows, np.full((len(rows), gap), 0xFF, np.uint8)], axis=1)


def padded(x: Floats) -> Floats:
    return np.pad(x, ((0, 0), (0, -x.shape[1] % 256)))


def q8_rows(x: Floats) -> Input:
    blocks = padded(x).reshape(len(x), -1, 32)
    scales = (np.abs(blocks).max(axis=2) / 127).astype(np.float32)
    codes = np.rint(blocks / np.where(scales == 0, 1, scales)[..., None]).astype(np.int8)
    scaled = np.zeros(scales.shape, BLOCK_INPUT)
    scaled["scale"] = scales
    scaled["half_sums"] = codes.reshape(*scales.shape, 2, 16).sum(axis=-1, dtype=np.int16)
    rows = np.concatenate([codes.reshape(len(x), -1).view(np.uint8), scaled.view(np.uint8).reshape(len(x), -1)], axis=1)
    exact = codes * scales.astype(np.float64)[..., None]
    return Input(with_gaps(rows), exact.reshape(len(x), -1)[:, : x.shape[1]])


def f16_rows(x: Floats) -> Input:
    """Returns rows in f16_rows: a power of two scales the largest element of each row to between 0.5 and 1."""
    wide = padded(x)
    factors = np.exp2(np.frexp(np.abs(wide).max(axis=1))[1]).astype(np.float32)
    halves = (wide / factors[:, None]).astype(np.float16)
    rows = np.concatenate([halves.view(np.uint8), factors[:, None].view(np.uint8)], axis=1)
    exact = halves.astype(np.float64) * factors[:, None]
    return Input(with_gaps(rows), exact[:, : x.shape[1]])


def f16_even_odd(x: Floats) -> Input:
    """Returns rows like f16_rows, with the even elements of each 16 before the odd ones."""
    rows = f16_rows(x)
    bytes_ = rows.bytes.copy()
    elements = bytes_[:, : 2 * padded(x).shape[1]].view(np.uint16).reshape(len(x), -1, 8, 2)
    bytes_[:, : elements[0].nbytes] = elements.swapaxes(2, 3).reshape(len(x), -1).view(np.uint8)
    return Input(bytes_, rows.exact)


def bf16_rows(x: Floats) -> Input:
    upper = (padded(x).view(np.uint32) >> 16).astype(np.uint32)
    exact = (upper << 16).view(np.float32).astype(np.float64)
    return Input(with_gaps(upper.astype(np.uint16).view(np.uint8)), exact[:, : x.shape[1]])


def input_for(dtype: str, x: Floats) -> Input:
    makers = {"q8_rows": q8_rows, "f16_even_odd": f16_even_odd, "f16_rows": f16_rows, "bf16_rows": bf16_rows}
    return makers[FORMATS[dtype]](x)


def product(x: Float64s, weight: Weight, bias: Floats | None = None) -> tuple[Float64s, Float64s]:
    """Returns the exact product, and how far a kernel may be from it."""
    exact = x @ weight.values.T.astype(np.float64) + (0 if bias is None else bias)
    sizes = magnitudes(weight)
    if weight.dtype in INTEGER_TYPES:
        bound = tolerances.sum_of_slices(x, sizes, n_sums=1 + (weight.dtype in MIN_OFFSETS))
    else:
        bound = tolerances.matrix_instructions(x, sizes)
    return exact, bound + (0 if bias is None else np.abs(bias) * tolerances.FLOAT32_ROUNDING)


def held_rows(m: int, k: int, seed: int = 0) -> Floats:
    """Returns rows that every format holds exactly: integers up to 127, times a power of two for each 32 elements."""
    rng = np.random.default_rng([seed, m, k])
    codes = rng.integers(-127, 128, (m, k))
    codes[:, ::32] = 127
    sizes = np.repeat(rng.integers(-14, -10, (m, -(-k // 32))), 32, axis=1)[:, :k]
    return np.ldexp(codes.astype(np.float32), sizes)


def k_of(dtype: str) -> int:
    """Returns a k of two tiles, the last one partial if the type has smaller blocks; an odd k for float types."""
    return {256: 512, 64: 320, 32: 352, 1: 275}[block_of(dtype)[0]]


def many_row_input(dtype: str, x: Floats) -> Input:
    """Returns the rows as the kernels for many rows read them."""
    if dtype in [*INTEGER_TYPES, "f8_e4m3"]:
        return f16_even_odd(x)
    return f16_rows(x) if dtype == "f16" else bf16_rows(x)


def bias_of(n: int) -> Floats:
    return np.random.default_rng(n).normal(size=n).astype(np.float32)


def many_row_product(x: Float64s, weight: Weight, bias: Floats | None = None) -> tuple[Float64s, Float64s]:
    """Returns the same as product() for a kernel for many rows, which converts weights to float16."""
    exact, bound = product(x, weight, bias)
    if weight.dtype in [*INTEGER_TYPES, "f8_e4m3"]:
        bound = tolerances.float16_weights(x, magnitudes(weight), n_roundings=1 + (weight.dtype in ROUNDED_SCALES))
        bound += 0 if bias is None else np.abs(bias) * tolerances.FLOAT32_ROUNDING
    return exact, bound


def is_within(out: Floats, exact: Float64s, bound: Float64s) -> bool:
    return bool((np.abs(out - exact) <= bound).all())


def run(
    device: str, kernel: str, weights: list[tuple[object, int, Floats | None]], x: Input, k: int, **how: object
) -> list[Floats]:
    """Runs a kernel. `weights` are terms: (the bytes in the file, or a list of them per expert; n; bias)."""
    dtype = next(dtype for dtype in TILE_TYPES if kernel.startswith(f"{dtype}_"))
    m = how.pop("m", len(x.bytes))
    return core.cuda_gemm(device, kernel, dtype, weights, k, x.bytes, m, **how)
