"""Two texts as one input: the ids around them, and the type of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairForm:
    """The ids before, between and after two texts."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    # How many ids between the texts belong to the first. What follows has token type 1; None: all have type 0.
    n_of_first: int | None = None

    @property
    def n_added(self) -> int:
        """The number of ids that are no text."""
        return len(self.before) + len(self.between) + len(self.after)

    def joined(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], int | None]:
        """The ids of a pair, and from which of them on the type is 1."""
        ids = [*self.before, *first, *self.between, *second, *self.after]
        types_from = None if self.n_of_first is None else len(self.before) + len(first) + self.n_of_first
        return ids, types_from


def form_of_singles(before: tuple[int, ...], after: tuple[int, ...], *, has_types: bool) -> PairForm | None:
    """The form of a GGUF file, which states only what is around one text.

    With types it is BERT's: one end between the texts. Without, RoBERTa's: two. None if nothing would divide the texts.
    """
    if not after:
        return None
    if has_types:
        return PairForm(before, after, after, n_of_first=len(after))
    return PairForm(before, after + after, after)
