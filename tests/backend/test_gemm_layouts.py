"""Panels of sixteen rows, byte for byte: kernels get the layout of panel_blocks.h, as NumPy makes it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.gemm_families import PANEL_TYPES
from imp_service import _testing as core
from support.kernels.weights import block_of, random_weight

Bytes = NDArray[np.uint8]

# For each type, in the panel's order: the offset of units in the file's block, their bytes, and their number.
RUNS = {
    "q8_0": [(2, 4, 8), (0, 2, 1)],
    "q4_0": [(2, 4, 4), (0, 2, 1)],
    "q4_1": [(4, 4, 4), (0, 2, 1), (2, 2, 1)],
    "q5_0": [(6, 4, 4), (2, 4, 1), (0, 2, 1)],
    "q5_1": [(8, 4, 4), (4, 4, 1), (0, 2, 1), (2, 2, 1)],
    "q2_k": [(16, 4, 16), (0, 1, 16), (80, 2, 1), (82, 2, 1)],
    "q3_k": [(0, 4, 8), (32, 4, 16), (96, 1, 12), (108, 2, 1)],
    "q4_k": [(16, 4, 32), (4, 1, 12), (0, 2, 1), (2, 2, 1)],
    "q5_k": [(16, 4, 8), (48, 4, 32), (4, 1, 12), (0, 2, 1), (2, 2, 1)],
    "q6_k": [(0, 4, 48), (192, 2, 8), (208, 2, 1)],
    "iq4_nl": [(2, 4, 4), (0, 2, 1)],
    "iq4_xs": [(8, 4, 32), (4, 1, 4), (2, 2, 1), (0, 2, 1)],
    "mxfp4": [(1, 4, 4), (0, 1, 1)],
    "tq2_0": [(0, 4, 16), (64, 2, 1)],
    "f8_e4m3": [(4, 1, 64), (0, 4, 1)],
    "f32": [(0, 4, 1)],
    "f16": [(0, 2, 1)],
}


def fifth_bits_spread(words: Bytes) -> Bytes:
    """Moves bit 4j + b of each four bytes to bit 8b + j."""
    bits = np.unpackbits(words, axis=-1, bitorder="little").reshape(*words.shape[:-1], -1, 8, 4)
    return np.packbits(bits.swapaxes(-1, -2).reshape(*words.shape[:-1], -1), axis=-1, bitorder="little")


def whole_codes_q6_k(blocks: Bytes) -> Bytes:
    """Returns 192 bytes: three units for each 16 codes, which the file stores as nibbles and pairs of bits."""
    low = blocks[..., :128].reshape(*blocks.shape[:-1], 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=-2).reshape(*blocks.shape[:-1], 256)
    high = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
    high = np.concatenate([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=-2).reshape(*blocks.shape[:-1], 256)
    codes = (low | high << 4).reshape(*blocks.shape[:-1], 16, 4, 4)  # sixteens, units, codes of a unit
    units = [codes[..., unit, :] | (codes[..., 3, :] >> 2 * unit & 3) << 6 for unit in range(3)]
    return np.stack(units, axis=-2).reshape(*blocks.shape[:-1], 192)


def changed_blocks(dtype: str, blocks: Bytes) -> Bytes:
    """Returns the file's blocks with the bytes that the panel stores differently."""
    blocks = blocks.copy()
    if dtype == "q8_0":
        blocks[..., 2:] += 128
    elif dtype in ("q5_0", "q5_1"):
        at = 2 if dtype == "q5_0" else 4
        blocks[..., at : at + 4] = fifth_bits_spread(blocks[..., at : at + 4])
    elif dtype == "q6_k":
        blocks[..., :192] = whole_codes_q6_k(blocks)
    return blocks


def panels_of(dtype: str, file: Bytes, n: int) -> Bytes:
    """Returns panels [panels, blocks of a row, bytes of 16 rows], with zeros for missing rows."""
    if dtype == "bf16":  # in pairs, and the last alone
        row_bytes = file.size // n
        runs = [(0, 4, row_bytes // 4), (row_bytes // 4 * 4, 2, row_bytes % 4 // 2)]
        return units_of(file.reshape(n, 1, row_bytes), runs)
    return units_of(changed_blocks(dtype, file.reshape(n, -1, block_of(dtype)[1])), RUNS[dtype])


def units_of(blocks: Bytes, runs: list[tuple[int, int, int]]) -> Bytes:
    n, n_blocks, _ = blocks.shape
    padded = np.zeros((-(-n // 16) * 16, *blocks.shape[1:]), np.uint8)
    padded[:n] = blocks
    sixteen = padded.reshape(len(padded) // 16, 16, n_blocks, -1).swapaxes(1, 2)  # panel, block, row, byte
    parts = []
    for begin, unit, n_units in runs:
        units = sixteen[..., begin : begin + unit * n_units].reshape(*sixteen.shape[:3], n_units, unit)
        parts.append(units.swapaxes(2, 3).reshape(*sixteen.shape[:2], -1))
    return np.concatenate(parts, axis=-1)


# Digests of packed weights on disk, for revision 1 of the layouts. If a layout changes, raise kLayoutRevision and
# change the digest here; otherwise a file of the old layout would be read as weights of the new one.
DIGESTS = {
    "f32": "eb2b8ebfa35999e2",
    "f16": "1b2a4932f1b418c8",
    "bf16": "f36d8b8b90e16098",
    "q4_0": "e13be4665ec5e8aa",
    "q4_1": "d8a76dc6756de557",
    "q5_0": "354ff85935c00c72",
    "q5_1": "13acc48597608fee",
    "q8_0": "6b9eaf98609f5773",
    "q2_k": "7d630d1c0d3f68d8",
    "q3_k": "08c85d38b53368fe",
    "q4_k": "c1aa05910124a8a4",
    "q5_k": "d7b2441470bc6bc0",
    "q6_k": "30f28049ad086197",
    "iq4_nl": "e13be4665ec5e8aa",
    "iq4_xs": "5ed04afc5aaf97fe",
    "mxfp4": "a5db1841e961ac79",
    "tq2_0": "f432abe074957e8b",
    "f8_e4m3": "d45ef09ed40b88ba",
}


def packed_digest(dtype: str) -> str:
    elements, n_bytes = block_of(dtype)
    file = np.random.default_rng(23).integers(0, 256, 20 * 3 * n_bytes, np.uint8)
    packed, _, _ = core.gemm_pack_and_unpack(dtype, file, 20, 3 * elements, n_threads=1)
    return hashlib.sha256(packed.tobytes()).hexdigest()[:16]


def test_mod_23_a_changed_layout_is_another_revision() -> None:
    assert core.layout_revision == 1
    assert {dtype: packed_digest(dtype) for dtype in DIGESTS} == DIGESTS


@pytest.mark.few(9)
@pytest.mark.parametrize("dtype", PANEL_TYPES)
def test_gemm_12_panels_hold_the_bytes_that_their_blocks_say(dtype: str) -> None:
    elements, _ = block_of(dtype)
    # Rows: part of a panel, one whole, two and a part. Blocks: an odd number, for float types too.
    for n, blocks in ((5, 1), (16, 3), (37, 67 if elements == 1 else 5)):
        k = elements * blocks
        file = random_weight(dtype, n, k).file
        packed, _, _ = core.gemm_pack_and_unpack(dtype, file, n, k, n_threads=2)
        expected = panels_of(dtype, file, n)
        np.testing.assert_array_equal(packed, expected.ravel())
        with pytest.raises(AssertionError):
            np.testing.assert_array_equal(packed, np.roll(expected.ravel(), 1))
