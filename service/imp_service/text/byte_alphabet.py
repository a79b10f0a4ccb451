"""GPT-2's alphabet: the 256 printable characters by which byte-level vocabularies spell bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np


def _byte_to_char() -> tuple[str, ...]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    chars: list[str] = []
    n_shifted = 0
    for byte in range(256):
        if byte in printable:
            chars.append(chr(byte))
        else:
            # Bytes without a visible Latin-1 character take the code points from U+0100 on, in order.
            chars.append(chr(0x100 + n_shifted))
            n_shifted += 1
    return tuple(chars)


BYTE_TO_CHAR = _byte_to_char()
CHAR_TO_BYTE = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}
_ALPHABET = frozenset(BYTE_TO_CHAR)
_TO_LATIN1 = {ord(char): byte for char, byte in CHAR_TO_BYTE.items()}


_BYTE_OF_CODE = np.zeros(0x100 + 256, np.uint8)
_BYTE_OF_CODE[list(_TO_LATIN1)] = list(_TO_LATIN1.values())
# By code point; the last row, which is no character of the alphabet, is for all that come after it.
_IS_SPELLED = np.isin(np.arange(len(_BYTE_OF_CODE)), list(_TO_LATIN1))


def all_spelled_bytes(texts: Sequence[str]) -> list[bytes] | None:
    """What each text spells, or None where a character of any is not of the alphabet. For a whole vocabulary."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
    if not _IS_SPELLED.take(codes, mode="clip").all():
        return None
    raw = _BYTE_OF_CODE[codes].tobytes()
    ends = list(accumulate(map(len, texts), initial=0))
    return [raw[begin:end] for begin, end in pairwise(ends)]


def spelled_bytes(text: str) -> bytes | None:
    """The bytes that `text` spells, or None where a character is not of the alphabet."""
    if not _ALPHABET.issuperset(text):
        return None
    return text.translate(_TO_LATIN1).encode("latin-1")
