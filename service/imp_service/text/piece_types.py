"""The kinds of vocabularies and of the pieces in them, and what a piece stands for in text."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum

import numpy as np
from numpy.typing import NDArray

from imp_service.text.byte_alphabet import all_spelled_bytes, spelled_bytes
from imp_service.text.errors import TokenizerInvalid

SPACE_MARK = "\u2581"
_SPACE_MARK_BYTES = SPACE_MARK.encode()


class VocabularyKind(Enum):
    """How text becomes tokens."""

    BYTE_LEVEL = "byte-level pair merging (GPT-2)"
    SCORED_MERGES = "SentencePiece pair merging, by the scores of the tokens"
    LISTED_MERGES = "SentencePiece pair merging, by a list of merges"
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


# Types that are no text: rendered only where special tokens are asked for.
SPECIAL_TYPES = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.UNUSED)


def render_pieces(kind: VocabularyKind, pieces: list[bytes], types: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """What each id stands for in text."""
    # By type; enumerations are slow to ask for each of a hundred thousand tokens.
    rendering_of = {int(token_type): _rendering(kind, token_type) for token_type in TokenType}
    if kind is VocabularyKind.BYTE_LEVEL and (spelled := _all_spelled(pieces)) is not None:
        for token_id in np.isin(types, (*SPECIAL_TYPES, TokenType.USER_DEFINED)).nonzero()[0].tolist():
            spelled[token_id] = pieces[token_id]
        return tuple(spelled)
    return tuple(rendering_of[token_type](piece) for piece, token_type in zip(pieces, types.tolist(), strict=True))


def _all_spelled(pieces: list[bytes]) -> list[bytes] | None:
    """All at once, where all are spelled in the alphabet: special tokens, which are plain, nearly always could be."""
    try:
        return all_spelled_bytes([piece.decode() for piece in pieces])
    except UnicodeDecodeError:
        return None


def _rendering(kind: VocabularyKind, token_type: TokenType) -> Callable[[bytes], bytes]:
    """What pieces of a type stand for in text."""
    if token_type is TokenType.BYTE and kind is not VocabularyKind.BYTE_LEVEL:
        return _fallback_byte
    if token_type in SPECIAL_TYPES:
        return bytes
    if kind is not VocabularyKind.BYTE_LEVEL:
        return lambda piece: piece.replace(_SPACE_MARK_BYTES, b" ")
    return bytes if token_type is TokenType.USER_DEFINED else _spelled_or_plain


def _spelled_or_plain(piece: bytes) -> bytes:
    """Some byte-level vocabularies hold tokens that are not spelled in the alphabet: those are plain text."""
    try:
        spelled = spelled_bytes(piece.decode())
    except UnicodeDecodeError:
        return piece
    return piece if spelled is None else spelled


def _fallback_byte(piece: bytes) -> bytes:
    """The byte that a piece like `<0x0A>` stands for."""
    digits = piece[3:5]
    if len(piece) != 6 or piece[:3] != b"<0x" or piece[5:] != b">" or not digits.isalnum():
        raise TokenizerInvalid("tokenizer.ggml.tokens", f"byte token {piece[:16]!r}, expected the form <0x0A>")
    try:
        return bytes((int(digits, 16),))
    except ValueError as error:
        raise TokenizerInvalid("tokenizer.ggml.tokens", f"byte token {piece[:16]!r} has no byte") from error
