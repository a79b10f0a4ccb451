"""Writes the scales of quantized blocks; the rest of a block may be any bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Byte offsets of the float16 fields in a block, which multiply the integers.
FLOAT16_SCALES = {
    "q4_0": [0],
    "q4_1": [0, 2],
    "q5_0": [0],
    "q5_1": [0, 2],
    "q8_0": [0],
    "q2_k": [80, 82],
    "q3_k": [108],
    "q4_k": [0, 2],
    "q5_k": [0, 2],
    "q6_k": [208],
    "iq4_nl": [0],
    "iq4_xs": [0],
    "tq1_0": [52],
    "tq2_0": [64],
    "iq1_s": [0],
    "iq2_xxs": [0],
    "iq2_xs": [0],
    "iq2_s": [0],
    "iq3_xxs": [0],
    "iq3_s": [0],
    "iq1_m": [48],  # the top four bits of each of four 16-bit numbers from here on, the low bits first
}
# Byte offset of an exponent: the scale is 2^(byte - 128).
EXPONENTS = {"mxfp4": 0}
# Byte offset of a float32.
FLOAT32_SCALES = {"f8_e4m3": 0}
QUANTIZED_TYPES = [*FLOAT16_SCALES, *EXPONENTS, *FLOAT32_SCALES]

Blocks = NDArray[np.uint8]


def set_float16(dtype: str, blocks: Blocks, field: int, patterns: NDArray[np.uint16]) -> None:
    """Writes one float16 field of blocks [n, bytes]. `patterns` are bits: one for each block, or one for all."""
    offset = FLOAT16_SCALES[dtype][field]
    if dtype == "iq1_m":
        words = blocks[:, offset : offset + 8].copy().view(np.uint16) & 0x0FFF
        nibbles = patterns.reshape(-1, 1) >> np.array([0, 4, 8, 12], np.uint16) & 0xF
        blocks[:, offset : offset + 8] = (words | nibbles << 12).view(np.uint8)
        return
    blocks[:, offset : offset + 2] = patterns.reshape(-1, 1).view(np.uint8)


def set_scales(
    dtype: str, blocks: Blocks, rng: np.random.Generator, sizes: tuple[float, float], *, signs: bool
) -> None:
    """Gives blocks [n, bytes] random scales of a size between `sizes`; with `signs`, of both signs where possible."""
    n_fields = len(FLOAT16_SCALES.get(dtype, [0]))
    for field in range(n_fields):
        scales = rng.uniform(*sizes, len(blocks)) * rng.choice([-1, 1] if signs else [1], len(blocks))
        if dtype in EXPONENTS:
            blocks[:, EXPONENTS[dtype]] = 128 + np.rint(np.log2(np.abs(scales)))
        elif dtype in FLOAT32_SCALES:
            offset = FLOAT32_SCALES[dtype]
            blocks[:, offset : offset + 4] = scales.astype(np.float32).reshape(-1, 1).view(np.uint8)
            codes = blocks[:, offset + 4 :]
            codes[(codes & 0x7F) == 0x7F] -= 1  # which is NaN
        else:
            set_float16(dtype, blocks, field, scales.astype(np.float16).view(np.uint16))
