"""Mutates wire messages: flips bits, cuts, drops and inserts pieces, and adds shapes that have broken parsers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

# Varints that are bad lengths.
LENGTHS = (0, 1, 127, 128, 2**14, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def varint(value: int) -> bytes:
    """Encodes a varint: seven bits in each byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def hostile_shapes() -> list[bytes]:
    """Returns hostile messages, each of which is a whole request."""
    return [
        b"\x0b" * 10_000,  # groups without an end
        b"\x0b" * 10_000 + b"\x0c" * 10_000,
        b"\x0c",
        *(bytes([number << 3 | 2]) + varint(length) for number in (1, 3, 4, 7) for length in LENGTHS),
        *(bytes([number << 3 | wire]) + b"\xff" * 9 + b"\x01" for number in (1, 7, 12) for wire in range(8)),
        b"\xff" * 11,
        b"\x00",
        b"\x1a\x02\xc3\x28",  # text that is not UTF-8
        b"\x22\x06\x0a\x04\xff\xff\xff\xff",
        (b"\x2a" + varint(2**20) + b"\x0a" * 2**20),
    ]


def mutations(seeds: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yields `count` mutated messages, the same for the same seed."""
    chosen = random.Random(seed)
    for _ in range(count):
        content = bytearray(chosen.choice(seeds))
        for _ in range(chosen.choice((1, 1, 1, 2, 4, 8))):
            chosen.choice(WAYS)(content, chosen, seeds)
        yield bytes(content)


Way = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def _flip(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    if content:
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)


def _cut(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    del content[chosen.randint(0, len(content)) :]


def _drop(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    start = chosen.randint(0, len(content))
    del content[start : start + chosen.randint(1, 8)]


def _put_in(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    at = chosen.randint(0, len(content))
    content[at:at] = varint(chosen.choice(LENGTHS)) if chosen.random() < 0.5 else chosen.randbytes(chosen.randint(1, 6))


def _splice(content: bytearray, chosen: random.Random, seeds: Sequence[bytes]) -> None:
    other = chosen.choice(seeds)
    start = chosen.randint(0, len(other))
    at = chosen.randint(0, len(content))
    content[at:at] = other[start : start + chosen.randint(1, 40)]


def _replace(content: bytearray, chosen: random.Random, _: Sequence[bytes]) -> None:
    if content:
        at = chosen.randrange(len(content))
        content[at : at + 1] = varint(chosen.choice(LENGTHS))


WAYS: tuple[Way, ...] = (_flip, _flip, _cut, _drop, _put_in, _splice, _replace)
