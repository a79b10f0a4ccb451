"""Encoders of plain text: they contain no control token, so that no text can become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tokenizers import Encoding, Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer

# Starting the threads of the library takes longer than encoding so many characters.
_ALONE_CHARS = 512


class Encoder(Protocol):
    """Immutable; every method may be called from any thread."""

    @property
    def pre_tokenizer(self) -> PreTokenizer | None:
        """The library's object that finds the words; None: a text is one."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""

    def starts(self, text: str, ids: Sequence[int]) -> list[int]:
        """The index of the character with which each id of a text begins, traced through normalization."""


@dataclass(frozen=True, slots=True)
class LibraryEncoder:
    """A tokenizer of the library."""

    library: Tokenizer
    # Its ids that are other ids in the model.
    renumbered: Mapping[int, int] = field(default_factory=dict)

    @property
    def pre_tokenizer(self) -> PreTokenizer | None:
        found: PreTokenizer | None = self.library.pre_tokenizer
        return found

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        found = [encoding.ids for encoding in encodings(self.library, texts, has_offsets=False)]
        return [[self.renumbered.get(i, i) for i in ids] for ids in found] if self.renumbered else found

    def starts(self, text: str, _ids: Sequence[int]) -> list[int]:
        return [start for start, _ in self.library.encode(text, add_special_tokens=False).offsets]


def encodings(library: Tokenizer, texts: Sequence[str], *, has_offsets: bool) -> Sequence[Encoding]:
    """Encodes texts: few characters one after another, more on the threads of the library, without the GIL."""
    if sum(map(len, texts)) <= _ALONE_CHARS:
        return [library.encode(text, add_special_tokens=False) for text in texts]
    encode = library.encode_batch if has_offsets else library.encode_batch_fast
    return encode(texts, add_special_tokens=False)
