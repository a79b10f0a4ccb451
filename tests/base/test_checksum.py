"""The checksum of packed weights has a fixed definition and detects corrupted data."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service import _testing as core

MASK = (1 << 64) - 1
FACTOR = 0x9E3779B97F4A7C15


def mix(total: int, word: int) -> int:
    total ^= word
    product = (total ^ total >> 29) * FACTOR & MASK
    return (product << 29 | product >> 35) & MASK


def by_definition(data: bytes, seed: int) -> int:
    lanes = [(seed + (i + 1) * FACTOR) & MASK for i in range(8)]
    padded = data + bytes(-len(data) % 64)
    for at in range(0, len(padded), 64):
        words = [int.from_bytes(padded[at + 8 * i : at + 8 * i + 8], "little") for i in range(8)]
        lanes = [mix(lane, word) for lane, word in zip(lanes, words, strict=True)]
    total = len(data)
    for lane in lanes:
        total = mix(total, lane)
    total = mix(total ^ total >> 32, 0)
    return total ^ total >> 32


def random_bytes(n: int) -> bytes:
    return np.random.default_rng(n).bytes(n)


@pytest.mark.parametrize("n", [0, 1, 8, 63, 64, 65, 128, 1000, 4096])
def test_mod_23_the_checksum_is_what_files_have(n: int) -> None:
    data = random_bytes(n)
    for seed in (0, 1, MASK):
        assert core.checksum(data, seed) == by_definition(data, seed)
        assert core.checksum(data, seed) != by_definition(data + b"\0", seed)


def test_mod_23_every_flipped_bit_and_every_two_changed_words_show() -> None:
    data = bytearray(random_bytes(300))
    sums = {core.checksum(bytes(data), 7)}
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        sums.add(core.checksum(bytes(data), 7))
        data[bit // 8] ^= 1 << bit % 8
    assert len(sums) == 8 * len(data) + 1
    # A multiplication loses the highest bits most easily.
    tops = {core.checksum(bytes(data), 7)}
    places = range(7, len(data), 8)
    for first in places:
        for second in places:
            if first < second:
                data[first] ^= 0x80
                data[second] ^= 0x80
                tops.add(core.checksum(bytes(data), 7))
                data[first] ^= 0x80
                data[second] ^= 0x80
    n = len(places)
    assert len(tops) == n * (n - 1) // 2 + 1


def test_mod_23_places_and_lengths_are_distinguished() -> None:
    data = random_bytes(256)
    assert core.checksum(data, 1) != core.checksum(data, 2)
    assert core.checksum(data[64:] + data[:64], 1) != core.checksum(data, 1)
    assert len({core.checksum(bytes(n), 1) for n in range(200)}) == 200
