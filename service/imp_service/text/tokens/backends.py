"""The objects of the `tokenizers` library that encode the text of one vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from imp_service.text.errors import NativePanic, TextError, TokenizerInvalid, native_boundary
from imp_service.text.tokens.splitter import Splitter


@dataclass(frozen=True, slots=True)
class Backends:
    """Tokenizers of plain text: they contain no control token, so that no text can become one."""

    # For segments that take a space before them, and for others. They differ only where there is such a space.
    first: Tokenizer
    rest: Tokenizer
    splitter: Splitter
    # Ids of the library that are other ids in the model, of the first tokenizer and of the other one.
    renumbered: Mapping[int, int] = field(default_factory=dict)
    renumbered_rest: Mapping[int, int] = field(default_factory=dict)
    # They are those of a SentencePiece file: the caller puts the space before a text.
    is_sentencepiece: bool = False
    # The tokenizer.json that describes them, if the model has one.
    document: bytes | None = None

    @classmethod
    def of(cls, library: Tokenizer, splitter: Splitter) -> Backends:
        """One tokenizer for every segment."""
        return cls(library, library, splitter)

    def of_segment(self, takes_prefix: bool) -> Tokenizer:
        """The tokenizer of a segment of text."""
        return self.first if takes_prefix else self.rest

    def token_ids(self, found: list[int], takes_prefix: bool) -> list[int]:
        """The model's ids, from those of the segment's tokenizer."""
        renumbered = self.renumbered if takes_prefix else self.renumbered_rest
        return [renumbered.get(each, each) for each in found] if renumbered else found


@contextmanager
def library_boundary(path: str) -> Iterator[None]:
    """Turns the library's errors about a vocabulary into `TokenizerInvalid`."""
    try:
        with native_boundary("tokenizers"):
            yield
    except NativePanic as error:
        raise TokenizerInvalid(path, "refused by the tokenizer library: it panicked") from error
    except TextError:
        raise
    except Exception as error:  # The library raises bare Exceptions.
        raise TokenizerInvalid(path, f"refused by the tokenizer library: {error}") from error
