"""Replies about texts and tokens, written in pieces: their size has a limit, and the event loop runs between pieces."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence

from imp_service.api.errors import invalid
from imp_service.serving.served_model import ServedModel
from imp_service.text import Tokenizer

# Ids in one call of a library, which holds Python's lock.
SLICE = 4096
# What surrounds a field of a message: a tag and a length, or the signs of JSON.
FRAME_BYTES = 6


class ReplySize:
    """Counts the bytes of a reply. Raises if they exceed the limit of a message."""

    def __init__(self, path: str, served: ServedModel) -> None:
        """`path` is the field that the error names."""
        self._path = path
        self._most = served.settings.limits.max_message_bytes
        self._n_bytes = 0

    def add(self, n_bytes: int) -> None:
        """Adds bytes. Raises FIELD_INVALID if the reply is too large to be sent."""
        self._n_bytes += n_bytes
        if self._n_bytes > self._most:
            words = f"the reply has more than limits.max_message_bytes = {self._most} bytes"
            raise invalid(self._path, words)

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces, each counted, and once what surrounds them."""
        self.add(FRAME_BYTES)
        for piece in pieces:
            self.add(len(piece))
            yield piece


def check_text_size(path: str, lists: Iterable[Sequence[int]], tokenizer: Tokenizer, served: ServedModel) -> None:
    """Raises FIELD_INVALID if the text of all ids is too large for a reply: a few ids may have long texts."""
    size, texts = ReplySize(path, served), tokenizer.table.token_bytes
    for ids in lists:
        for each in sliced(ids):
            size.add(sum(len(texts[token_id]) for token_id in each))


def sliced(items: Sequence[int]) -> Iterator[Sequence[int]]:
    """A sequence in slices: one call over all of it would block every other thread of Python."""
    for first in range(0, len(items), SLICE):
        yield items[first : first + SLICE]


def as_text(raw: Iterable[bytes]) -> Iterator[str]:
    """The text of bytes in UTF-8. Each maximal ill-formed part becomes one U+FFFD."""
    decoder = getincrementaldecoder("utf-8")("replace")
    for piece in raw:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
