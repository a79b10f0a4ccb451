"""Byte-pair encoding by the core, whose tables are built in a fraction of the time that those of the library take.

The library does the rest, as for all other vocabularies: it normalizes, finds the tokens that stand in any text, and
cuts words. For that it has the same objects around a model that finds each word as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, repeat

import numpy as np
from tokenizers import Tokenizer, models, normalizers
from tokenizers.pre_tokenizers import PreTokenizer

from imp_service._core import ListedMerges, ScoredMerges
from imp_service.text.tokens.added_tokens import AS_SPELLED, library_token
from imp_service.text.tokens.encoders import encodings
from imp_service.text.tokens.library_tokenizer import other_names
from imp_service.text.tokens.merges import merge_pairs, require_tokens
from imp_service.text.tokens.piece_types import SPACE_MARK, TokenType, VocabularyKind
from imp_service.text.tokens.pre_tokenizers import Step
from imp_service.text.tokens.vocabulary import Vocabulary

# A text, the first character and the end of each of its words, one after another, and for each word the id that it has
# as a whole, or -1; an empty list if all are -1.
_Cut = tuple[str, list[tuple[int, int]], list[int]]

# The library's id of a word, whatever the word.
_WORD = 0
_BYTE_NAME = b"<0x"
_CONTINUATIONS = bytes(range(0x80, 0xC0))
# Canonical composition neither changes these characters nor joins them: Latin, Cyrillic, kana, Han, Hangul, emoji.
IS_COMPOSED = re.compile(
    "[\0-\u02ff\u0400-\u0482\u048a-\u052f\u2010-\u2027\u3001-\u3029\u3041-\u3096\u30a1-\u9fff\uac00-\ud7a3\uff01-\uff60"
    "\U0001f300-\U0001faff]*"
)


def encodes_merges(vocabulary: Vocabulary) -> bool:
    """Whether a MergeEncoder gives the library's ids: not where a SentencePiece text is rewritten or has unknown parts,
    nor where words are cut after they are spelled in the byte alphabet."""
    if vocabulary.kind is VocabularyKind.BYTE_LEVEL:
        return vocabulary.rule is not None and Step.BYTES not in vocabulary.rule.steps
    is_merging = vocabulary.kind in (VocabularyKind.SCORED_MERGES, VocabularyKind.LISTED_MERGES)
    is_rewritten = bool(vocabulary.character_map) or vocabulary.removes_extra_spaces
    if not is_merging or is_rewritten or not vocabulary.has_all_bytes:
        return False
    # A piece that joins the names of bytes has another text than its characters say.
    return b"\0".join(vocabulary.pieces).count(_BYTE_NAME) == 256


class MergeEncoder:
    """The encoder of a vocabulary of which `encodes_merges` is true."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._is_byte_level = vocabulary.kind is VocabularyKind.BYTE_LEVEL
        self._mark = SPACE_MARK if vocabulary.adds_space_prefix else ""
        names = _names(vocabulary)
        self._merges = _merges(vocabulary, names)
        found = (vocabulary.types == TokenType.USER_DEFINED).nonzero()[0].tolist()
        # Of two tokens with one name, the first has it.
        self._added = {names[i].decode(): i for i in found if names[i] and self._merges.find(names[i]) == i}
        # By the id of the library.
        self._ids = (-1, *self._added.values())
        self._normalizer: normalizers.Normalizer | None = None
        self.pre_tokenizer: PreTokenizer | None = None
        if self._is_byte_level and vocabulary.rule is not None:
            self._normalizer = vocabulary.rule.build_normalizer()
            self.pre_tokenizer = vocabulary.rule.build(spells_bytes=False)
        self._words = self._around(models.WordLevel({"": _WORD}, unk_token=""), None)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._merges.encode(*cut) for cut in self._cut(texts)]

    def starts(self, text: str, ids: Sequence[int]) -> list[int]:
        characters = self._traced_characters(text) if self._is_byte_level else self._marked_characters(text)
        starts: list[int] = []
        position = 0
        for token_id in ids:
            token = self._token_bytes[token_id]
            # A token may begin within a character.
            starts.append(characters[position - 1 if token[:1] in _CONTINUATIONS else position])
            position += len(token.translate(None, _CONTINUATIONS))
        return starts

    def _cut(self, texts: Sequence[str]) -> Iterator[_Cut]:
        if self._normalizer is not None and not all(map(IS_COMPOSED.fullmatch, texts)):
            for encoding in encodings(self._composed_words, texts, has_offsets=True):
                yield *_joined(encoding.tokens), self._found(encoding.ids)
        elif self._is_byte_level or self._added:
            for text, encoding in zip(texts, encodings(self._words, texts, has_offsets=True), strict=True):
                yield self._marked(text, encoding.offsets, self._found(encoding.ids))
        else:
            yield from (self._marked(text, [(0, len(text))], []) for text in texts)

    def _found(self, ids: list[int]) -> list[int]:
        return [self._ids[i] for i in ids] if any(ids) else []

    def _marked(self, text: str, offsets: list[tuple[int, int]], found: list[int]) -> _Cut:
        """With marks for spaces, and before each word."""
        if self._is_byte_level:
            return text, offsets, found
        text = text.replace(" ", SPACE_MARK)
        if not self._mark:
            return text, offsets, found
        words = [text[begin:end] for begin, end in offsets]
        marks = [self._mark if word and i < 0 else "" for word, i in zip(words, found or repeat(-1), strict=False)]
        marked = [mark + word for mark, word in zip(marks, words, strict=True)]
        return *_joined(marked), found

    def _traced_characters(self, text: str) -> list[int]:
        """For each character of the normalized text, the index of the one that it comes from."""
        traced = self._characters.encode(text, add_special_tokens=False)
        characters: list[int] = []
        for token_id, token, (start, _) in zip(traced.ids, traced.tokens, traced.offsets, strict=True):
            characters += [start] * (1 if token_id == _WORD else len(token))
        return characters

    def _marked_characters(self, text: str) -> list[int]:
        """The same where marks alone are added."""
        ((_, offsets, found),) = self._cut([text])
        characters: list[int] = []
        position = 0
        for (begin, end), token_id in zip(offsets, found or [-1] * len(offsets), strict=True):
            mark = self._mark if token_id < 0 else ""
            characters += [position] * len(mark)
            characters += range(position, position + end - begin - len(mark))
            position += end - begin - len(mark)
        return characters

    @cached_property
    def _composed_words(self) -> Tokenizer:
        """Returns each word of the normalized text as it is."""
        return self._around(models.Unigram([("", 0.0)], _WORD), self._normalizer)

    @cached_property
    def _characters(self) -> Tokenizer:
        """Finds each character of the words of the normalized text."""
        return self._around(models.BPE({"": _WORD}, [], unk_token="", fuse_unk=False), self._normalizer)

    def _around(self, model: models.Model, normalizer: normalizers.Normalizer | None) -> Tokenizer:
        library = Tokenizer(model)
        if normalizer is not None:
            library.normalizer = normalizer
        if self.pre_tokenizer is not None:
            library.pre_tokenizer = self.pre_tokenizer
        library.add_tokens([library_token(text, AS_SPELLED) for text in self._added])
        return library


def _joined(words: list[str]) -> tuple[str, list[tuple[int, int]]]:
    return "".join(words), list(pairwise(accumulate(map(len, words), initial=0)))


def _names(vocabulary: Vocabulary) -> list[bytes]:
    """The name of each id in the library's vocabulary; an empty one if text must not produce the id."""
    names = list(vocabulary.pieces)
    for token_id, name in other_names(vocabulary):
        names[token_id] = name.encode()
    return names


def _merges(vocabulary: Vocabulary, names: list[bytes]) -> ListedMerges | ScoredMerges:
    if vocabulary.kind is VocabularyKind.SCORED_MERGES:
        assert vocabulary.scores is not None  # it was read
        # Two pieces form no token that is found otherwise.
        return ScoredMerges(names, np.where(vocabulary.types == TokenType.NORMAL, vocabulary.scores, np.float32("nan")))
    rule = vocabulary.rule
    merges = ListedMerges(
        names,
        list(vocabulary.merges),
        is_byte_level=vocabulary.kind is VocabularyKind.BYTE_LEVEL,
        ignores_merges=rule is not None and rule.ignores_merges,
    )
    if not merges.knows_all_lines:
        require_tokens(dict(enumerate(merge_pairs(vocabulary.merges, vocabulary.pieces))), vocabulary.pieces)
    return merges
