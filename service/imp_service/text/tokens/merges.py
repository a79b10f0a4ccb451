"""Parses a vocabulary's list of merges into pairs, all at once, since there are hundreds of thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from imp_service.text.errors import TokenizerInvalid

Pair = tuple[str, str]


def merge_pairs(lines: Sequence[bytes], pieces: Sequence[bytes]) -> list[Pair]:
    """The two parts of each line, which may not be tokens.

    Raises TokenizerInvalid for the first line without two parts.
    """
    plain = _plain_pairs(lines)
    if plain is not None:
        return plain
    try:
        pairs = [line.decode().partition(" ")[::2] for line in lines]
    except UnicodeDecodeError:
        return [_pair(rank, line) for rank, line in enumerate(lines)]  # raises the error, with the line's rank
    # Parts with blanks or line breaks, and lines without two parts.
    odd = {
        rank: _pair(rank, lines[rank])
        for rank, (left, right) in enumerate(pairs)
        if not left or not right or " " in right or "\n" in left or "\n" in right
    }
    if odd:
        # The library's vocabulary uses such names for other tokens.
        require_tokens(odd, pieces)
    for rank, pair in odd.items():
        pairs[rank] = pair
    return pairs


_SPACE, _LINE_FEED = b" \n"


def _plain_pairs(lines: Sequence[bytes]) -> list[Pair] | None:
    """All pairs, if each line is two words with a space between them, as in nearly every file; else None."""
    joined = b"\n".join(lines)
    codes = np.frombuffer(joined, np.uint8)
    marks = codes[(codes == _SPACE) | (codes == _LINE_FEED)]
    if len(marks) != 2 * len(lines) - 1 or (marks[::2] != _SPACE).any() or (marks[1::2] != _LINE_FEED).any():
        return None
    try:
        words = joined.replace(b"\n", b" ").decode().split(" ")
    except UnicodeDecodeError:
        return None
    return None if "" in words else list(zip(words[::2], words[1::2], strict=True))


def _pair(rank: int, line: bytes) -> Pair:
    # A part may begin with a blank, but contains none elsewhere.
    cut = line.find(b" ", 1)
    if cut < 0 or cut + 1 == len(line):
        raise _wrong(rank, "expected two parts with a space between them")
    try:
        return line[:cut].decode(), line[cut + 1 :].decode()
    except UnicodeDecodeError:
        raise _wrong(rank, "not UTF-8") from None


def require_tokens(pairs: Mapping[int, Pair], pieces: Sequence[bytes]) -> None:
    """Raises TokenizerInvalid for the first merge, by rank, whose parts or result are not all tokens."""
    known = set(pieces)
    for rank, (left, right) in pairs.items():
        for part in (left, right, left + right):
            if part.encode() not in known:
                raise _wrong(rank, f"{part!r} is not a token")


def _wrong(rank: int, why: str) -> TokenizerInvalid:
    return TokenizerInvalid("tokenizer.ggml.merges", f"merge {rank}: {why}")
