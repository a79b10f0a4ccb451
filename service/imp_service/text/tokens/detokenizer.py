"""Converts token ids to bytes, for `Detokenize` and for streaming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The facts of a vocabulary that a detokenizer needs."""

    token_bytes: Sequence[bytes]
    # Ids of special tokens, which are not text.
    special: frozenset[int]
    bos: int | None
    # The tokenizer puts a space before the text. The detokenizer removes it if the ids begin with `bos`, so are a whole
    # text. Ids that continue a prompt keep every space.
    adds_space_prefix: bool


class Detokenizer:
    """One sequence's ids, in order. Not for use by two threads at once."""

    __slots__ = ("_n_fed", "_renders_special", "_strips_next", "_table")

    def __init__(self, table: TokenTable, *, special_tokens: bool) -> None:
        self._table = table
        self._renders_special = special_tokens
        self._n_fed = 0
        self._strips_next = False

    def feed(self, token_id: int) -> bytes:
        """The bytes that this token adds."""
        table = self._table
        piece = table.token_bytes[token_id]
        is_first, self._n_fed = self._n_fed == 0, self._n_fed + 1
        if token_id in table.special:
            self._strips_next = is_first and table.adds_space_prefix and token_id == table.bos
            return piece if self._renders_special else b""
        if self._strips_next:
            self._strips_next = False
            return piece[1:] if piece[:1] == b" " else piece
        return piece

    def mark(self) -> tuple[int, bool]:
        """The state, to pass to `rewind`."""
        return self._n_fed, self._strips_next

    def rewind(self, mark: tuple[int, bool]) -> None:
        """Forgets what was fed since `mark`."""
        self._n_fed, self._strips_next = mark
