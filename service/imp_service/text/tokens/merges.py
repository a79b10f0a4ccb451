"""Parses a vocabulary's list of merges into pairs, all at once, since there are hundreds of thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imp_service.text.errors import TokenizerInvalid

Pair = tuple[str, str]


def merge_pairs(lines: Sequence[bytes], pieces: Sequence[bytes]) -> list[Pair]:
    """The two parts of each line, which may not be tokens.

    Raises TokenizerInvalid for the first line without two parts.
    """
    odd = [rank for rank, line in enumerate(lines) if line.count(b" ") != 1 or b"\n" in line]
    if not odd:
        return _plain_pairs(lines)
    # Parts with blanks or line breaks. They are few, and the others are parsed all at once.
    by_rank = {rank: _pair(rank, lines[rank]) for rank in odd}
    # The library's vocabulary uses such names for other tokens.
    require_tokens(by_rank, pieces)
    plain = _plain_pairs([line for rank, line in enumerate(lines) if rank not in by_rank])
    pairs: list[Pair] = []
    start = 0
    for n_before, rank in enumerate(odd):
        pairs += plain[start : rank - n_before]
        pairs.append(by_rank[rank])
        start = rank - n_before
    return pairs + plain[start:]


def _plain_pairs(lines: Sequence[bytes]) -> list[Pair]:
    """The parts of lines with one blank and no line break."""
    try:
        parts = b"\n".join(lines).decode().replace("\n", " ").split(" ")
    except UnicodeDecodeError:
        return [_pair(rank, line) for rank, line in enumerate(lines)]
    return list(zip(parts[::2], parts[1::2], strict=False))  # of no lines there is one part, an empty one


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
