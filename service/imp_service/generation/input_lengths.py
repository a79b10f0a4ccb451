"""The length of an input: what is too long is refused or cut. Special tokens stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.core import Error, make_error


@dataclass(frozen=True, slots=True)
class LengthRule:
    """The most tokens of an input, and the end of its text that may be cut: "end", "start", or "none"."""

    most: int
    truncate: str

    def cut(self, ids: Sequence[int], n_around: int, index: int) -> Sequence[int]:
        """The tokens of a text that stay. `n_around` tokens come before and after them."""
        room = self.most - n_around
        if len(ids) <= room:
            return ids
        if self.truncate == "none" or room < 1:
            raise self.too_long(n_around + len(ids), index)
        return ids[:room] if self.truncate == "end" else ids[len(ids) - room :]

    def too_long(self, n_tokens: int, index: int) -> Error:
        """The error of an input of so many tokens."""
        details = {"index": str(index), "prompt_tokens": str(n_tokens), "max_context_tokens": str(self.most)}
        words = f"{n_tokens} tokens, at most {self.most} fit; truncate cuts what is too long"
        return make_error("CONTEXT_TOO_LONG", words, details)
