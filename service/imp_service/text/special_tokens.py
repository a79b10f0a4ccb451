"""Tokens with a role of their own: which ids begin, end, and separate a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imp_service.text.end_tokens import EndSources, read_ends
from imp_service.text.metadata import TokenizerMetadata
from imp_service.text.piece_types import TokenType


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids with a role of their own; None where the file names none."""

    bos: int | None
    eos: int | None
    unknown: int | None
    separator: int | None
    # All that end a text, and what says so.
    ends: EndSources
    # Never to be sampled.
    suppressed: tuple[int, ...]


# Unicode's white space, which a stripping token removes from the text behind it.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# A model file does not say which tokens strip white space. As in llama.cpp, the name of the model decides.
_STRIPPING_MODELS = ("phi-3", "phi3")
_NOT_STRIPPING = frozenset({b"<unk>", b"<s>", b"<|endoftext|>"})


def read_right_stripping(keys: TokenizerMetadata, pieces: Sequence[bytes], types: NDArray[np.uint8]) -> frozenset[int]:
    """Ids of special tokens that strip the white space behind them."""
    name = keys.metadata.get("general.name")
    if not isinstance(name, str) or not any(part in name.lower() for part in _STRIPPING_MODELS):
        return frozenset()
    added = np.isin(types, (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)).nonzero()[0].tolist()
    return frozenset(token_id for token_id in added if pieces[token_id] not in _NOT_STRIPPING)


def counterparts_of_control(pieces: Sequence[bytes], types: NDArray[np.uint8]) -> list[int]:
    """`</s>` if `<s>` is a control token but `</s>` is marked as text: users' text must not produce the end token."""
    ids = {piece: token_id for token_id, piece in enumerate(pieces) if piece in (b"<s>", b"</s>")}
    begin, end = ids.get(b"<s>"), ids.get(b"</s>")
    if begin is None or end is None or types[begin] != TokenType.CONTROL or types[end] != TokenType.USER_DEFINED:
        return []
    return [end]


def read_special_ids(
    keys: TokenizerMetadata, pieces: list[bytes], types: NDArray[np.uint8], end_ids: Sequence[int] | None = None
) -> SpecialIds:
    """The roles that the file and its vocabulary name. `end_ids` replace every end that the file names."""
    n_tokens = len(pieces)
    named = {name: keys.token_id(f"{name}_token_id", n_tokens) for name in ("bos", "eos", "unknown")}
    for name in ("eot", "eom", "padding", "mask"):
        keys.token_id(f"{name}_token_id", n_tokens)
    # The format's own spelling of the key is the first one.
    separator = keys.token_id("seperator_token_id", n_tokens)
    if separator is None:
        separator = keys.token_id("separator_token_id", n_tokens)
    bos = named["bos"] if named["bos"] is not None else keys.token_id("cls_token_id", n_tokens)
    return SpecialIds(
        bos=bos,
        eos=named["eos"],
        unknown=named["unknown"],
        separator=separator,
        ends=read_ends(keys.metadata, pieces, types, end_ids),
        suppressed=keys.token_ids("suppress_tokens", n_tokens),
    )
