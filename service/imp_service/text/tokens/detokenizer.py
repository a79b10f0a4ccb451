"""Ids to the bytes they stand for: the one definition of `Detokenize`, which streaming follows token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What a detokenizer needs to know of a vocabulary."""

    token_bytes: Sequence[bytes]
    # Ids that are no text.
    special: frozenset[int]
    bos: int | None
    # The tokenizer puts a space before the text. It is taken off again where the ids begin with `bos`, which marks
    # them as a whole text; ids that go on after a prompt keep every space.
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
        """The state, to come back to with `rewind`."""
        return self._n_fed, self._strips_next

    def rewind(self, mark: tuple[int, bool]) -> None:
        """Forgets what was fed since `mark`."""
        self._n_fed, self._strips_next = mark
