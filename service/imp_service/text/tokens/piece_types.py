"""The kinds of vocabularies and of their pieces, and the bytes of a piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum

import numpy as np
from numpy.typing import NDArray

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
CHAR_TO_BYTE = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}
_ALPHABET = frozenset(BYTE_TO_CHAR)
_TO_LATIN1 = {ord(char): byte for char, byte in CHAR_TO_BYTE.items()}


_BYTE_OF_CODE = np.zeros(0x100 + 256, np.uint8)
_BYTE_OF_CODE[list(_TO_LATIN1)] = list(_TO_LATIN1.values())
# By code point; the last row, which is no character of the alphabet, is for all that come after it.
_IS_SPELLED = np.isin(np.arange(len(_BYTE_OF_CODE)), list(_TO_LATIN1))
_SEPARATOR = b"\n"


def all_spelled_bytes(pieces: Sequence[bytes]) -> list[bytes] | None:
    """The bytes that each piece spells; None if a character of any piece is not in the alphabet.

    For a whole vocabulary: all pieces at once.
    """
    try:
        text = _SEPARATOR.join(pieces).decode()
    except UnicodeDecodeError:
        return None
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    is_separator = codes == ord(_SEPARATOR)  # which is not in the alphabet
    ends = is_separator.nonzero()[0].tolist()
    if len(ends) != len(pieces) - 1 or not (_IS_SPELLED.take(codes, mode="clip") | is_separator).all():
        return None
    raw = _BYTE_OF_CODE.take(codes).tobytes()
    return [raw[begin:end] for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, len(raw)], strict=True)]


def spelled_bytes(text: str) -> bytes | None:
    """The bytes that `text` spells; None if a character is not in the alphabet."""
    if not _ALPHABET.issuperset(text):
        return None
    return text.translate(_TO_LATIN1).encode("latin-1")


SPACE_MARK = "\u2581"
_SPACE_MARK_BYTES = SPACE_MARK.encode()


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


def render_pieces(kind: VocabularyKind, pieces: list[bytes], types: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """The bytes of each id in text."""
    # By type; enumerations are slow to ask for each of a hundred thousand tokens.
    rendering_of = {int(token_type): _rendering(kind, token_type) for token_type in TokenType}
    # Special tokens are plain text, but nearly always use only characters of the alphabet.
    if kind is VocabularyKind.BYTE_LEVEL and (spelled := all_spelled_bytes(pieces)) is not None:
        for token_id in np.isin(types, (*SPECIAL_TYPES, TokenType.USER_DEFINED)).nonzero()[0].tolist():
            spelled[token_id] = pieces[token_id]
        return tuple(spelled)
    return tuple(rendering_of[token_type](piece) for piece, token_type in zip(pieces, types.tolist(), strict=True))


def _rendering(kind: VocabularyKind, token_type: TokenType) -> Callable[[bytes], bytes]:
    """Returns a function that renders pieces of a type."""
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
    """Returns the byte that a piece such as `<0x0A>` represents."""
    digits = piece[3:5]
    if len(piece) != 6 or piece[:3] != b"<0x" or piece[5:] != b">" or not digits.isalnum():
        raise TokenizerInvalid("tokenizer.ggml.tokens", f"byte token {piece[:16]!r}, expected the form <0x0A>")
    try:
        return bytes((int(digits, 16),))
    except ValueError as error:
        raise TokenizerInvalid("tokenizer.ggml.tokens", f"byte token {piece[:16]!r} has no byte") from error
