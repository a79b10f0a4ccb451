"""What encodes the text of one vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tokenizers import Tokenizer

from imp_service.text.errors import NativePanic, TextError, TokenizerInvalid, native_boundary
from imp_service.text.tokens.encoders import Encoder
from imp_service.text.tokens.splitter import Splitter


@dataclass(frozen=True, slots=True)
class Backends:
    """The encoders of a vocabulary's texts, and the search for its special tokens."""

    # For segments that take a space before them, and for others. They differ only where there is such a space.
    first: Encoder
    rest: Encoder
    splitter: Splitter
    # Builds the first one as an object of the `tokenizers` library.
    library: Callable[[], Tokenizer]
    # They are those of a SentencePiece file: the caller puts the space before a text.
    is_sentencepiece: bool = False
    # The tokenizer.json that describes them, if the model has one.
    document: bytes | None = None

    def of_segment(self, takes_prefix: bool) -> Encoder:
        """The encoder of a segment of text."""
        return self.first if takes_prefix else self.rest


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
