"""Tiles of weights: every bit is where the layout says, as NumPy makes it from the formats' definitions, and back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _testing as core
from support.kernels.gpu_gemm import TILE_TYPES
from support.kernels.weights import block_of, random_weight

Bytes = NDArray[np.uint8]


def halves(packed: Bytes) -> Bytes:
    """Returns the low halves of the last axis' bytes, then the high ones, on a new axis before it."""
    return np.stack([packed & 15, packed >> 4], axis=-2)


def parts(dtype: str, blocks: Bytes) -> tuple[Bytes, Bytes | None, list[tuple[Bytes, int]]]:
    """Splits blocks [rows, blocks, bytes] into codes of all elements, high bits if they are separate, and other units
    [rows, units, bytes] with their number per tile.
    """
    shape = blocks.shape[:2]
    if dtype == "q8_0":
        return blocks[..., 2:].reshape(shape[0], -1), None, [(blocks[..., :2], 8)]
    if dtype == "q4_0":
        return halves(blocks[..., 2:]).reshape(shape[0], -1), None, [(blocks[..., :2], 8)]
    if dtype == "f8_e4m3":
        return blocks[..., 4:].reshape(shape[0], -1), None, [(blocks[..., :4], 4)]
    if dtype in ("q4_k", "q5_k"):
        codes = halves(blocks[..., -128:].reshape(*shape, 4, 32)).reshape(shape[0], -1)
        bits = None
        if dtype == "q5_k":
            high = blocks[..., 16:48]
            bits = np.stack([high >> i & 1 for i in range(8)], axis=-2).reshape(shape[0], -1)
        return codes, bits, [(blocks[..., :16], 1)]
    codes = halves(blocks[..., :128].reshape(*shape, 2, 64)).reshape(shape[0], -1)
    high = blocks[..., 128:192].reshape(*shape, 2, 32)
    pairs = np.stack([high >> 2 * i & 3 for i in range(4)], axis=-2).reshape(shape[0], -1)
    return codes, pairs, [(blocks[..., 192:208].reshape(shape[0], -1, 2), 8), (blocks[..., 208:], 1)]


def fragments(codes: Bytes) -> Bytes:
    """Returns codes [strips, 16, tiles, 256] as [strips, tiles, 8 fragments, 512 bytes]."""
    strips, _, tiles, _ = codes.shape
    # row = 8 · upper + g; k = 32 · fragment + 16 · last + 4 · t + byte
    cut = codes.reshape(strips, 2, 8, tiles, 8, 2, 4, 4)
    # lane = 4 · g + t; register = upper + 2 · last
    return cut.transpose(0, 3, 4, 2, 6, 5, 1, 7).reshape(strips, tiles, 8, 512)


def merged(planes: Bytes, bits: int) -> Bytes:
    """Merges fragments of codes with few bits: 8 / bits of them share bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    grouped = planes.reshape(*planes.shape[:2], -1, per_byte, 512)
    return sum(grouped[..., i, :] << bits * i for i in range(per_byte)).astype(np.uint8)


def by_rows(units: Bytes, per_tile: int, n_tiles: int) -> Bytes:
    """Returns units as [strips, tiles, rest], where the rest is in the order row % 8, unit, row / 8."""
    n = len(units)
    whole = np.zeros((-(-n // 16) * 16, n_tiles * per_tile, units.shape[2]), np.uint8)
    whole[:n, : units.shape[1]] = units
    cut = whole.reshape(-1, 2, 8, n_tiles, per_tile, units.shape[2])
    return cut.transpose(0, 3, 2, 4, 1, 5).reshape(len(whole) // 16, n_tiles, -1)


def tiles_of(dtype: str, file: Bytes, n: int, k: int) -> Bytes:
    strips, n_tiles = -(-n // 16), -(-k // 256)

    def whole(elements: NDArray) -> NDArray:
        out = np.zeros((strips * 16, n_tiles * 256), elements.dtype)
        out[:n, :k] = elements
        return out

    if dtype in ("f16", "bf16"):
        # row = 8 · upper + g; k = 16 · fragment + 8 · last + 2 · t + half
        cut = whole(file.view(np.uint16).reshape(n, k)).reshape(strips, 2, 8, n_tiles, 16, 2, 4, 2)
        return cut.transpose(0, 3, 4, 2, 6, 5, 1, 7).reshape(-1).view(np.uint8)
    codes, high, rest = parts(dtype, file.reshape(n, -1, block_of(dtype)[1]))
    planes = fragments(whole(codes).reshape(strips, 16, n_tiles, 256))
    whole_bytes = dtype in ("q8_0", "f8_e4m3")
    tile = [(planes if whole_bytes else merged(planes, 4)).reshape(strips, n_tiles, -1)]
    if high is not None:
        planes = fragments(whole(high).reshape(strips, 16, n_tiles, 256))
        tile.append(merged(planes, 1 if dtype == "q5_k" else 2).reshape(strips, n_tiles, -1))
    tile += [by_rows(units, per_tile, n_tiles) for units, per_tile in rest]
    return np.concatenate(tile, axis=-1).ravel()


def any_bytes(dtype: str, n: int, k: int) -> Bytes:
    elements, n_bytes = block_of(dtype)
    return np.random.default_rng([n, k]).integers(0, 256, n * k // elements * n_bytes, np.uint8)


def k_of(dtype: str, odd: int) -> int:
    """Returns a k with an odd number of blocks, or of elements for float types."""
    elements = block_of(dtype)[0]
    return 67 * odd if elements == 1 else elements * odd


@pytest.mark.parametrize("n", [5, 16, 37])
@pytest.mark.parametrize("dtype", TILE_TYPES)
def test_gemm_12_tiles_hold_every_bit_where_the_layout_says(dtype: str, n: int) -> None:
    for odd in (1, 3, 9):
        k = k_of(dtype, odd)
        file = any_bytes(dtype, n, k)
        tiles = core.cuda_pack_tiles(dtype, n, k, file)
        expected = tiles_of(dtype, file, n, k)
        np.testing.assert_array_equal(tiles, expected)
        np.testing.assert_array_equal(core.cuda_unpack_tiles(dtype, n, k, tiles), file)
        with pytest.raises(AssertionError):
            np.testing.assert_array_equal(tiles, np.roll(expected, 1))


@pytest.mark.parametrize("dtype", TILE_TYPES)
def test_gemm_12_control_a_bit_that_is_moved_is_another_weight(dtype: str) -> None:
    k = k_of(dtype, 3)
    weight = random_weight(dtype, 5, k)
    tiles = core.cuda_pack_tiles(dtype, 5, k, weight.file)
    tiles[0] ^= 1
    assert (core.cuda_unpack_tiles(dtype, 5, k, tiles) != weight.file).sum() == 1
