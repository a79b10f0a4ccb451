"""The tokenizer of one model. It is built once, from the model file's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from imp_service.text.errors import FieldInvalid, TooManyTokens, native_boundary
from imp_service.text.tokens.backends import Backends, library_boundary
from imp_service.text.tokens.detokenizer import Detokenizer, TokenTable
from imp_service.text.tokens.encoders import LibraryEncoder
from imp_service.text.tokens.infill import InfillTokens, read_infill
from imp_service.text.tokens.library_tokenizer import build_backend
from imp_service.text.tokens.merge_encoder import MergeEncoder, encodes_merges
from imp_service.text.tokens.pair_form import PairForm
from imp_service.text.tokens.piece_types import VocabularyKind
from imp_service.text.tokens.segments import Segmenter, TextSpan
from imp_service.text.tokens.special_tokens import SpecialIds
from imp_service.text.tokens.splitter import Found, Splitter
from imp_service.text.tokens.text_cuts import PART_CHARS, TextPart, most_token_bytes
from imp_service.text.tokens.vocabulary import Vocabulary, read_vocabulary, require_rows

# Letters, digits, spaces, scripts, signs, marks, a control character, and words longer than any.
_TRIAL = (
    "Hello, world's 0123456789 \t\n\n  na\u00efve e\u0301 \u4e16\u754c \U0001f600 \u2581<s></s>\x00"
    + "a" * 300
    + " " * 300
)
# Characters of several texts that are encoded together: as many parts keep the library's threads busy.
MANY_CHARS = 16 * PART_CHARS


@dataclass(frozen=True, slots=True)
class Encoding:
    """Ids, and where in the text's UTF-8 each one begins."""

    ids: list[int]
    start_bytes: list[int]


class Tokenizer:
    """Immutable once built; every method may be called from any thread."""

    def __init__(self, vocabulary: Vocabulary, backends: Backends, roles: Mapping[str, str] | None = None) -> None:
        """`roles` are the spellings of special tokens by role, if they are not those of the ids with a role."""
        self._vocabulary = vocabulary
        self._backends = backends
        self._roles = _spelled_roles(vocabulary) if roles is None else roles
        self._table = TokenTable(
            token_bytes=vocabulary.token_bytes,
            special=vocabulary.special_ids(),
            bos=vocabulary.special.bos,
            adds_space_prefix=vocabulary.adds_space_prefix or vocabulary.kind is VocabularyKind.WORD_PIECE,
        )
        self._segmenter = Segmenter(vocabulary, backends)
        self._most_bytes = most_token_bytes(vocabulary)

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, object], *, pre: str | None = None, end_ids: Sequence[int] | None = None
    ) -> Tokenizer:
        """Builds from a model file's key-values. `pre` replaces `tokenizer.ggml.pre`, `end_ids` the file's ends."""
        vocabulary = read_vocabulary(metadata, pre=pre, end_ids=end_ids)
        with library_boundary("tokenizer.ggml.tokens"):
            built = cls(vocabulary, _backends(vocabulary))
        return built._tried()

    @classmethod
    def from_directory(
        cls,
        metadata: Mapping[str, object],
        *,
        n_rows: int | None = None,
        pre: str | None = None,
        end_ids: Sequence[int] | None = None,
    ) -> Tokenizer:
        """Builds from a model directory: the metadata of its config.json, and the content of its files by name.

        An added token from `n_rows` on, the number of the model's embedding rows, is none. `pre` names the rule for
        words, which only vocab.json needs. `end_ids` replace the ends that the files name.
        """
        from imp_service.text.directory.tokenizer import read_directory

        return cls(*read_directory(metadata, n_rows=n_rows, pre=pre, end_ids=end_ids))._tried()

    def _tried(self) -> Tokenizer:
        """Itself. Raises TokenizerInvalid if it fails on a text: else the first request would find that out."""
        with library_boundary(self._vocabulary.place):
            self.decode(self.encode(_TRIAL))
            self.encode_with_offsets(_TRIAL)
        return self

    def require_rows(self, n_rows: int) -> None:
        """Raises TokenizerInvalid where the model has fewer embedding rows than there are ids."""
        require_rows(self._vocabulary.place, self.vocab_size, n_rows)

    @property
    def vocab_size(self) -> int:
        """The number of ids. A model may have further embedding rows, which are not tokens."""
        return len(self._vocabulary)

    @property
    def kind(self) -> VocabularyKind:
        return self._vocabulary.kind

    @property
    def pre(self) -> str:
        """The name of the pre-tokenization rule."""
        return self._vocabulary.pre

    @property
    def special(self) -> SpecialIds:
        return self._vocabulary.special

    @property
    def roles(self) -> Mapping[str, str]:
        """The texts of special tokens, by the name of their role in chat templates."""
        return self._roles

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.special.bos

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a text."""
        return frozenset(self._vocabulary.special.ends)

    @property
    def pair_form(self) -> PairForm | None:
        """How two texts are one input; None: the model's files do not say."""
        return self._vocabulary.pair

    @property
    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after a text that gets special tokens."""
        return self._vocabulary.before, self._vocabulary.after

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are not text."""
        return self._table.special

    @property
    def suppressed_ids(self) -> tuple[int, ...]:
        """Ids that are never to be sampled."""
        return self._vocabulary.special.suppressed

    @property
    def table(self) -> TokenTable:
        """For streaming and for constraints."""
        return self._table

    @cached_property
    def infill(self) -> InfillTokens | None:
        """The tokens with which the model fills in the middle; None if it has none."""
        vocabulary = self._vocabulary
        return read_infill(vocabulary.special.infill, vocabulary.pieces, vocabulary.types)

    @cached_property
    def sha256(self) -> str:
        """The digest of the vocabulary, computed at its first use."""
        return self._vocabulary.sha256()

    @cached_property
    def encoding_sha256(self) -> str:
        """The digest of what decides the ids of a text, computed at its first use."""
        return self._vocabulary.encoding_sha256(self._backends.document)

    def archive(self, chat_template: str | None) -> bytes:
        """The tokenizer as a zip of files that other programs read. Takes a moment: keep it off an event loop."""
        from imp_service.text.tokens.tokenizer_files import tokenizer_archive

        return tokenizer_archive(self._vocabulary, self._backends, chat_template)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of the id, special or not."""
        self._check_ids((token_id,))
        return self._vocabulary.token_bytes[token_id]

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False) -> list[int]:
        """Converts text to ids. Special tokens spelled in the text are text unless they are to be parsed."""
        return self.encode_spans([TextSpan(text, parse_special_tokens)], add_special_tokens=add_special_tokens)

    def encode_spans(
        self, spans: Sequence[TextSpan], *, add_special_tokens: bool, most: int | None = None
    ) -> list[int]:
        """Ids of the joined text, of which only some parts may contain special tokens.

        Raises TooManyTokens as soon as there are more than `most`; before it encodes if the size alone shows that.
        """
        if most is not None:
            n_tokens = self.least_tokens(sum(len(span.text.encode(errors="replace")) for span in spans))
            if n_tokens > most:
                raise TooManyTokens(n_tokens)
        ids: list[int] = []
        for part in self.encode_parts(spans, add_special_tokens=add_special_tokens):
            ids += part
            if most is not None and len(ids) > most:
                raise TooManyTokens(len(ids))
        return ids

    def encode_many(self, inputs: Sequence[Sequence[TextSpan]]) -> list[list[int]]:
        """The ids of each input, without those around a text. Short inputs are encoded together, on several threads."""
        found: list[list[int]] = [[] for _ in inputs]
        batch: list[Found | TextPart] = []
        owners: list[int] = []
        n_chars = 0

        def encode() -> None:
            for owner, ids in zip(owners, self._encoded(batch), strict=True):
                found[owner] += ids

        for i, spans in enumerate(inputs):
            for segment in self._segmenter.segments(spans):
                batch.append(segment)
                owners.append(i)
                n_chars += len(segment.text)
            if n_chars >= MANY_CHARS:
                encode()
                batch, owners, n_chars = [], [], 0
        encode()
        return found

    def encode_rest(self, text: str) -> list[int]:
        """Ids of a text that goes on after other text: no space is put before it.

        None if the vocabulary puts one there and would join the text with what is before it.
        """
        if not self._table.adds_space_prefix:
            return self.encode(text, add_special_tokens=False)
        marked = self.encode_with_offsets("\n" + text, add_special_tokens=False)
        first = marked.start_bytes.index(1) if 1 in marked.start_bytes else len(marked.ids)
        return marked.ids[first:]

    def encode_parts(self, spans: Sequence[TextSpan], *, add_special_tokens: bool) -> Iterator[list[int]]:
        """The ids of `encode_spans`, part by part; the text is encoded only as far as the caller iterates."""
        before, after = map(list, self.around if add_special_tokens else ((), ()))
        yield before
        batch: list[Found | TextPart] = []
        n_chars = 0
        for segment in self._segmenter.segments(spans):
            batch.append(segment)
            if isinstance(segment, TextPart):
                n_chars += len(segment.encoded)
            if n_chars >= PART_CHARS:
                yield self._encode_batch(batch)
                batch, n_chars = [], 0
        yield self._encode_batch(batch) + after

    def encode_with_offsets(
        self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False
    ) -> Encoding:
        """As `encode`, with the offset of each id. An id that is added around the text has the offset of its border."""
        whole = Encoding([], [])
        for part in self.offset_parts(
            text, add_special_tokens=add_special_tokens, parse_special_tokens=parse_special_tokens
        ):
            whole.ids.extend(part.ids)
            whole.start_bytes.extend(part.start_bytes)
        return whole

    def offset_parts(
        self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False
    ) -> Iterator[Encoding]:
        """The same, a segment of the text at a time."""
        before, after = map(list, self.around if add_special_tokens else ((), ()))
        yield Encoding(before, [0] * len(before))
        position = 0
        for segment in self._segmenter.segments([TextSpan(text, parse_special_tokens)]):
            if isinstance(segment, Found):
                yield Encoding([segment.token_id], [position])
            else:
                ids, starts = self._encode_part(segment)
                yield Encoding(ids, (starts + position).tolist())
            position += len(segment.text.encode())
        yield Encoding(after, [position] * len(after))

    def least_tokens(self, n_bytes: int) -> int:
        """A lower bound for the number of tokens of a text with so many bytes."""
        return -(-n_bytes // self._most_bytes) if self._most_bytes else 0

    def decode_bytes(self, ids: Sequence[int], *, special_tokens: bool = False) -> bytes:
        """The exact bytes. Special tokens are left out unless requested."""
        return b"".join(self.decode_parts([ids], special_tokens=special_tokens))

    def decode_parts(self, parts: Iterable[Sequence[int]], *, special_tokens: bool = False) -> Iterator[bytes]:
        """The same for ids in parts."""
        detokenizer = Detokenizer(self._table, special_tokens=special_tokens)
        for ids in parts:
            self._check_ids(ids)
            yield b"".join([detokenizer.feed(token_id) for token_id in ids])

    def decode(self, ids: Sequence[int], *, special_tokens: bool = False) -> str:
        """The text; each maximal ill-formed part becomes one U+FFFD."""
        return self.decode_bytes(ids, special_tokens=special_tokens).decode("utf-8", "replace")

    def _check_ids(self, ids: Sequence[int]) -> None:
        n_tokens = len(self._vocabulary)
        for index, token_id in enumerate(ids):
            if not 0 <= token_id < n_tokens:
                raise FieldInvalid(f"token_ids[{index}]", f"{token_id}, expected an id below {n_tokens}")

    def _encode_batch(self, batch: Sequence[Found | TextPart]) -> list[int]:
        return [token_id for ids in self._encoded(batch) for token_id in ids]

    def _encoded(self, batch: Sequence[Found | TextPart]) -> Iterator[list[int]]:
        """The ids of each segment."""
        encoded = {}
        for takes_prefix in (True, False):
            texts = [each.encoded for each in batch if isinstance(each, TextPart) and each.takes_prefix == takes_prefix]
            with native_boundary("tokenizers"):
                encoded[takes_prefix] = iter(self._backends.of_segment(takes_prefix).ids(texts))
        for each in batch:
            yield [each.token_id] if isinstance(each, Found) else next(encoded[each.takes_prefix])

    def _encode_part(self, part: TextPart) -> tuple[list[int], NDArray[np.int64]]:
        encoder = self._backends.of_segment(part.takes_prefix)
        with native_boundary("tokenizers"):
            ids = encoder.ids([part.encoded])[0]
        pieces = [self._vocabulary.token_bytes[token_id] for token_id in ids]
        raw, spelled = part.text.encode(), b"".join(pieces)
        ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
        if spelled == raw:
            return ids, ends[:-1]
        if self._table.adds_space_prefix and spelled == b" " + raw:
            return ids, np.maximum(ends[:-1] - 1, 0)
        # The tokenizer rewrites text (composition, lower case): the library traces characters through that.
        with native_boundary("tokenizers"):
            starts_of_ids = encoder.starts(part.encoded, ids)
        char_starts = np.cumsum([0, *(len(char.encode()) for char in part.encoded)], dtype=np.int64)
        n_left_out = len(part.text) - len(part.encoded)
        return ids, np.maximum(char_starts[starts_of_ids] + n_left_out, 0)


def _backends(vocabulary: Vocabulary) -> Backends:
    """One encoder for every segment."""
    splitter = Splitter(vocabulary)
    if encodes_merges(vocabulary):
        merging = MergeEncoder(vocabulary)
        return Backends(merging, merging, splitter, lambda: build_backend(vocabulary))
    library = build_backend(vocabulary)
    encoder = LibraryEncoder(library)
    return Backends(encoder, encoder, splitter, lambda: library)


def _spelled_roles(vocabulary: Vocabulary) -> dict[str, str]:
    special = vocabulary.special
    ids = {
        "bos_token": special.bos,
        "eos_token": special.eos,
        "unk_token": special.unknown,
        "sep_token": special.separator,
    }
    return {
        role: vocabulary.token_bytes[token_id].decode("utf-8", "replace")
        for role, token_id in ids.items()
        if token_id is not None
    }
