"""The tokenizer of one model: text to ids and back, built once from the model file's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imp_service.text.backends import build_backend, build_splitter
from imp_service.text.detokenizer import Detokenizer, TokenTable
from imp_service.text.errors import FieldInvalid, TokenizerInvalid, native_boundary
from imp_service.text.piece_types import TokenType, VocabularyKind
from imp_service.text.special_tokens import SpecialIds
from imp_service.text.vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A stretch of a prompt and whether special tokens spelled in it are meant as such."""

    text: str
    parses_special_tokens: bool


@dataclass(frozen=True, slots=True)
class Encoding:
    """Ids, and where in the text's UTF-8 each one begins."""

    ids: list[int]
    start_bytes: list[int]


class Tokenizer:
    """Immutable once built; every method may be called from any thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        try:
            with native_boundary("tokenizers"):
                self._backend = build_backend(vocabulary)
                self._splitter, self._split_ids = build_splitter(_parsed_spellings(vocabulary))
        except TokenizerInvalid:
            raise
        except Exception as error:  # The library raises bare Exceptions.
            raise TokenizerInvalid("tokenizer.ggml.tokens", f"refused by the tokenizer library: {error}") from error
        self._table = TokenTable(
            token_bytes=vocabulary.token_bytes,
            special=vocabulary.special_ids(),
            bos=vocabulary.special.bos,
            adds_space_prefix=vocabulary.adds_space_prefix or vocabulary.kind is VocabularyKind.WORD_PIECE,
        )
        self._spellable = bytes(set(range(256)) - set(vocabulary.missing_bytes))
        self._sha256 = vocabulary.sha256()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, pre: str | None = None) -> Tokenizer:
        """Builds from a model file's key-values. `pre` overrides `tokenizer.ggml.pre`."""
        return cls(read_vocabulary(metadata, pre=pre))

    def require_rows(self, n_rows: int) -> None:
        """Raises TokenizerInvalid where the model has fewer embedding rows than there are ids."""
        if self.vocab_size > n_rows:
            raise TokenizerInvalid(
                "tokenizer.ggml.tokens", f"{self.vocab_size} tokens, the model has {n_rows} embedding rows"
            )

    @property
    def vocab_size(self) -> int:
        """Ids of the vocabulary; a model may have further embedding rows, which are no tokens."""
        return len(self._vocabulary)

    @property
    def kind(self) -> VocabularyKind:
        return self._vocabulary.kind

    @property
    def pre(self) -> str:
        """The name of the word-cutting rule in force."""
        return self._vocabulary.pre

    @property
    def special(self) -> SpecialIds:
        return self._vocabulary.special

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.special.bos

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a generation."""
        return self._vocabulary.special.ends

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are no text."""
        return self._table.special

    @property
    def suppressed_ids(self) -> tuple[int, ...]:
        """Ids that are never to be sampled."""
        return self._vocabulary.special.suppressed

    @property
    def table(self) -> TokenTable:
        """For streaming and for constraints."""
        return self._table

    @property
    def sha256(self) -> str:
        """Names the vocabulary."""
        return self._sha256

    def archive(self, chat_template: str | None) -> bytes:
        """The tokenizer as a zip of files that other programs read. Takes a moment: keep it off an event loop."""
        from imp_service.text.tokenizer_files import tokenizer_archive

        return tokenizer_archive(self._vocabulary, chat_template)

    def token_bytes(self, token_id: int) -> bytes:
        """What the id stands for, special or not."""
        self._check_ids((token_id,))
        return self._vocabulary.token_bytes[token_id]

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False) -> list[int]:
        """Text to ids. Special tokens spelled in the text are text unless they are to be parsed."""
        return self.encode_spans([TextSpan(text, parse_special_tokens)], add_special_tokens=add_special_tokens)

    def encode_spans(self, spans: Sequence[TextSpan], *, add_special_tokens: bool) -> list[int]:
        """Ids of the joined text, in which only some stretches may hold special tokens."""
        parts = self._split(spans)
        encoded = self._encode_texts([part for part in parts if isinstance(part, str)])
        ids: list[int] = []
        for part in parts:
            ids.extend((part,) if isinstance(part, int) else next(encoded))
        if add_special_tokens:
            before, after = self._added_ids()
            return [*before, *ids, *after]
        return ids

    def encode_with_offsets(
        self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False
    ) -> Encoding:
        """As `encode`, and where each id begins; an added token begins where the text begins or ends."""
        ids: list[int] = []
        starts: list[int] = []
        position = 0
        for part in self._split([TextSpan(text, parse_special_tokens)]):
            if isinstance(part, int):
                ids.append(part)
                starts.append(position)
                position += len(self._vocabulary.pieces[part])
                continue
            part_ids, part_starts = self._encode_part(part)
            ids += part_ids
            starts += (part_starts + position).tolist()
            position += len(part.encode())
        if add_special_tokens:
            before, after = self._added_ids()
            ids = [*before, *ids, *after]
            starts = [*(0 for _ in before), *starts, *(position for _ in after)]
        return Encoding(ids, starts)

    def decode_bytes(self, ids: Sequence[int], *, special_tokens: bool = False) -> bytes:
        """The exact bytes; special tokens are left out unless asked for."""
        self._check_ids(ids)
        detokenizer = Detokenizer(self._table, special_tokens=special_tokens)
        return b"".join([detokenizer.feed(token_id) for token_id in ids])

    def decode(self, ids: Sequence[int], *, special_tokens: bool = False) -> str:
        """The text; each maximal ill-formed part becomes one U+FFFD."""
        return self.decode_bytes(ids, special_tokens=special_tokens).decode("utf-8", "replace")

    def _check_ids(self, ids: Sequence[int]) -> None:
        n_tokens = len(self._vocabulary)
        for index, token_id in enumerate(ids):
            if not 0 <= token_id < n_tokens:
                raise FieldInvalid(f"token_ids[{index}]", f"{token_id}, expected an id below {n_tokens}")

    def _check_text(self, text: str) -> None:
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise FieldInvalid("text", f"a surrogate at character {error.start}") from error
        unspellable = raw.translate(None, self._spellable) if self._vocabulary.missing_bytes else b""
        if unspellable:
            raise FieldInvalid("text", f"byte 0x{unspellable[0]:02X} has no token in this model's vocabulary")

    def _added_ids(self) -> tuple[list[int], list[int]]:
        vocabulary, special = self._vocabulary, self._vocabulary.special
        before = [special.bos] if vocabulary.adds_bos and special.bos is not None else []
        after = [special.separator] if vocabulary.adds_separator and special.separator is not None else []
        if vocabulary.adds_eos and special.eos is not None:
            after.append(special.eos)
        return before, after

    def _split(self, spans: Sequence[TextSpan]) -> list[int | str]:
        """Special ids and the joined stretches of text between them."""
        parts: list[int | str] = []
        pending: list[str] = []

        def flush() -> None:
            text = "".join(pending)
            pending.clear()
            if text:
                parts.append(text)

        for text, parses in _join_alike(spans):
            self._check_text(text)
            if not parses:
                pending.append(text)
                continue
            with native_boundary("tokenizers"):
                found = self._splitter.encode(text, add_special_tokens=False)
            for split_id, (start, end) in zip(found.ids, found.offsets, strict=True):
                if split_id == 0:
                    pending.append(text[start:end])
                else:
                    flush()
                    parts.append(self._split_ids[split_id])
        flush()
        return parts

    def _encode_texts(self, texts: list[str]) -> Iterator[list[int]]:
        with native_boundary("tokenizers"):
            return iter([e.ids for e in self._backend.encode_batch_fast(texts, add_special_tokens=False)])

    def _encode_part(self, text: str) -> tuple[list[int], NDArray[np.int64]]:
        with native_boundary("tokenizers"):
            encoding = self._backend.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        pieces = [self._vocabulary.token_bytes[token_id] for token_id in ids]
        raw, spelled = text.encode(), b"".join(pieces)
        ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
        if spelled == raw:
            return ids, ends[:-1]
        if self._table.adds_space_prefix and spelled == b" " + raw:
            return ids, np.maximum(ends[:-1] - 1, 0)
        # The tokenizer rewrites text (composition, lower case): the library traces characters through that.
        char_starts = np.cumsum([0, *(len(char.encode()) for char in text)], dtype=np.int64)
        return ids, char_starts[[start for start, _ in encoding.offsets]]


def _parsed_spellings(vocabulary: Vocabulary) -> dict[str, int]:
    """What is looked for where special tokens are parsed: control tokens, and those that are found in any text."""
    parsed = np.isin(vocabulary.types, (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED))
    spellings: dict[str, int] = {}
    for token_id in parsed.nonzero()[0].tolist():
        try:
            text = vocabulary.token_bytes[token_id].decode()
        except UnicodeDecodeError:
            continue
        if text:
            spellings.setdefault(text, token_id)
    return spellings


def _join_alike(spans: Sequence[TextSpan]) -> list[tuple[str, bool]]:
    """Neighbours that are read in the same way are one text: a token may lie across their border."""
    joined: list[tuple[list[str], bool]] = []
    for span in spans:
        if joined and joined[-1][1] == span.parses_special_tokens:
            joined[-1][0].append(span.text)
        else:
            joined.append(([span.text], span.parses_special_tokens))
    return [("".join(texts), parses) for texts, parses in joined]
