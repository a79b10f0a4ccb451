"""Parses a vocabulary's list of merges into pairs, all at once, since there are hundreds of thousands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from imp_service.text.errors import TokenizerInvalid

Pair = tuple[str, str]
_NEITHER_BLANK_NOR_END = bytes(byte for byte in range(256) if byte not in b" \n")


def merge_pairs(lines: Sequence[bytes], pieces: Sequence[bytes]) -> list[Pair]:
    """The two parts of each line, which may not be tokens.

    Raises TokenizerInvalid for the first line without two parts.
    """
    joined = b"\n".join([*lines, b""])
    if joined.translate(None, _NEITHER_BLANK_NOR_END) == b" \n" * len(lines):
        try:
            parts = joined[:-1].decode().replace("\n", " ").split(" ")
        except UnicodeDecodeError:
            return _pairs_one_by_one(lines)
        return list(zip(parts[::2], parts[1::2], strict=False))  # of no lines there is one part, an empty one
    pairs = _pairs_one_by_one(lines)
    # Parts with blanks: the library's vocabulary uses such names for other tokens.
    require_tokens(pairs, pieces)
    return pairs


def _pairs_one_by_one(lines: Iterable[bytes]) -> list[Pair]:
    pairs: list[Pair] = []
    for rank, line in enumerate(lines):
        # A part may begin with a blank, but contains none elsewhere.
        cut = line.find(b" ", 1)
        if cut < 0 or cut + 1 == len(line):
            raise _wrong(rank, "expected two parts with a space between them")
        try:
            pairs.append((line[:cut].decode(), line[cut + 1 :].decode()))
        except UnicodeDecodeError:
            raise _wrong(rank, "not UTF-8") from None
    return pairs


def require_tokens(pairs: Iterable[Pair], pieces: Sequence[bytes]) -> None:
    """Raises TokenizerInvalid for the first merge whose parts or result are not all tokens."""
    known = set(pieces)
    for rank, (left, right) in enumerate(pairs):
        for part in (left, right, left + right):
            if part.encode() not in known:
                raise _wrong(rank, f"{part!r} is not a token")


def _wrong(rank: int, why: str) -> TokenizerInvalid:
    return TokenizerInvalid("tokenizer.ggml.merges", f"merge {rank}: {why}")
