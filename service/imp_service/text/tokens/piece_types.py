"""The kinds of vocabularies and of their pieces, and the bytes of a piece."""

from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np
from numpy.typing import NDArray

from imp_service._core import piece_bytes
from imp_service.text.errors import TokenizerInvalid


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

SPACE_MARK = "\u2581"


class VocabularyKind(Enum):
    """How text becomes tokens."""

    BYTE_LEVEL = "byte-level BPE (GPT-2)"
    SCORED_MERGES = "SentencePiece BPE with scores"
    LISTED_MERGES = "SentencePiece BPE with merges"
    UNIGRAM = "SentencePiece unigram"
    WORD_PIECE = "WordPiece (BERT)"


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Types that are not text: rendered only if special tokens are requested.
SPECIAL_TYPES = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.UNUSED)


# What the library's WordPiece puts before a piece inside a word.
WITHIN_WORD = "##"


def piece_of_word(name: str) -> str:
    """The piece of a name in the library's WordPiece, as GGUF files have it: the mark of a space begins a word."""
    if name.startswith(WITHIN_WORD):
        return name.removeprefix(WITHIN_WORD)
    return name if name.startswith("[") and name.endswith("]") else SPACE_MARK + name


def render_pieces(kind: VocabularyKind, pieces: list[bytes], types: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """The bytes of each id in text."""
    is_byte_level = kind is VocabularyKind.BYTE_LEVEL
    # Some byte-level vocabularies hold tokens that are not spelled in the alphabet: those are plain text.
    rendered = piece_bytes(pieces, is_byte_level=is_byte_level)
    plain = (*SPECIAL_TYPES, TokenType.USER_DEFINED) if is_byte_level else SPECIAL_TYPES
    for token_id in np.isin(types, plain).nonzero()[0].tolist():
        rendered[token_id] = pieces[token_id]
    if not is_byte_level:
        for token_id in (types == TokenType.BYTE).nonzero()[0].tolist():
            rendered[token_id] = _fallback_byte(pieces[token_id])
    return tuple(rendered)


def _fallback_byte(piece: bytes) -> bytes:
    """Returns the byte that a piece such as `<0x0A>` represents."""
    digits = piece[3:5]
    if len(piece) != 6 or piece[:3] != b"<0x" or piece[5:] != b">" or not digits.isalnum():
        raise TokenizerInvalid("tokenizer.ggml.tokens", f"byte token {piece[:16]!r}, expected the form <0x0A>")
    try:
        return bytes((int(digits, 16),))
    except ValueError as error:
        raise TokenizerInvalid("tokenizer.ggml.tokens", f"byte token {piece[:16]!r} has no byte") from error
