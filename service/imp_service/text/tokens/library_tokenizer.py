"""Builds the object of the `tokenizers` library, in one way for each kind of vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.merges import merge_pairs, require_tokens
from imp_service.text.tokens.piece_types import SPACE_MARK, WITHIN_WORD, TokenType, VocabularyKind
from imp_service.text.tokens.vocabulary import Vocabulary

# Returns the name of an id from its piece and the bytes of the piece; empty if text must not produce the id.
_Naming = Callable[[str, bytes], str]
# Below every real score: such a piece is used only if no other matches.
_NEVER = -1e9


def build_backend(vocabulary: Vocabulary, *, as_sentencepiece: bool = False) -> Tokenizer:
    """A tokenizer of plain text. It does not contain control tokens, so that no text can become one.

    `as_sentencepiece`: user-defined symbols are looked for in the normalized text, and the caller puts the space before
    a text. Otherwise a symbol ends a segment and each segment gets a space, as in llama.cpp.
    """
    ids = _ids_by_name(vocabulary)
    names = list(ids)
    match vocabulary.kind:
        case VocabularyKind.BYTE_LEVEL:
            backend = _byte_level(vocabulary, ids)
        case VocabularyKind.SCORED_MERGES | VocabularyKind.LISTED_MERGES:
            backend = _sentencepiece_merges(vocabulary, names, ids, as_sentencepiece)
        case VocabularyKind.UNIGRAM:
            backend = _unigram(vocabulary, names, as_sentencepiece)
        case VocabularyKind.WORD_PIECE:
            backend = _word_piece(vocabulary, names, ids)
    found_in_any_text = (vocabulary.types == TokenType.USER_DEFINED).nonzero()[0].tolist()
    backend.add_tokens(
        [
            AddedToken(names[token_id], normalized=as_sentencepiece, special=False)
            for token_id in found_in_any_text
            if not _is_placeholder(names[token_id])
            and not (as_sentencepiece and _is_never_normalized(vocabulary, token_id))
        ]
    )
    return backend


def _is_never_normalized(vocabulary: Vocabulary, token_id: int) -> bool:
    """Normalized text does not contain the symbol: it has no space, and perhaps no extra ones."""
    symbol = vocabulary.pieces[token_id].decode("utf-8", "replace")
    return " " in symbol or (vocabulary.removes_extra_spaces and symbol.strip(SPACE_MARK) != symbol)


_PLACEHOLDER = " \0id "


def placeholder(token_id: int) -> str:
    """A name for an id that text must not produce.

    It has a space, which every kind of vocabulary replaces before the look-up.
    """
    return f"{_PLACEHOLDER}{token_id}"


def _is_placeholder(name: str) -> bool:
    return name.startswith(_PLACEHOLDER)


def _ids_by_name(vocabulary: Vocabulary) -> dict[str, int]:
    """Ids by their names in the library's vocabulary, in order. An id that text must not produce has a placeholder."""
    return _ids_of_distinct(vocabulary) or _ids_one_by_one(vocabulary)


def _ids_of_distinct(vocabulary: Vocabulary) -> dict[str, int] | None:
    """The fast path: all ids at once, if most names are the pieces themselves and no two are equal; else None."""
    if vocabulary.kind is VocabularyKind.WORD_PIECE:
        return None
    try:
        names = b"\n".join(vocabulary.pieces).decode().split("\n")  # faster than one by one
    except UnicodeDecodeError:
        return None
    if len(names) != len(vocabulary):  # a piece has a line feed
        return None
    for token_id, name in other_names(vocabulary):
        names[token_id] = name or placeholder(token_id)
    ids = dict(zip(names, range(len(names)), strict=True))
    return ids if len(ids) == len(names) and "" not in ids else None


def other_names(vocabulary: Vocabulary) -> Iterator[tuple[int, str]]:
    """Each id that is no ordinary token, with its name in the library's vocabulary; empty: no text becomes it."""
    name_of = _namings(vocabulary.kind)
    for token_id in (vocabulary.types != TokenType.NORMAL).nonzero()[0].tolist():
        try:
            text = vocabulary.pieces[token_id].decode()
        except UnicodeDecodeError:
            text = ""
        yield token_id, text and name_of[int(vocabulary.types[token_id])](text, vocabulary.token_bytes[token_id])


def _ids_one_by_one(vocabulary: Vocabulary) -> dict[str, int]:
    name_of = _namings(vocabulary.kind)
    ids: dict[str, int] = {}
    pieces = zip(vocabulary.pieces, vocabulary.token_bytes, vocabulary.types.tolist(), strict=True)
    for token_id, (piece, rendered, token_type) in enumerate(pieces):
        try:
            name = name_of[token_type](piece.decode(), rendered)
        except UnicodeDecodeError:
            name = ""
        if not name or name in ids:
            # If two ids have the same spelling, the first one is used.
            name = placeholder(token_id)
        ids[name] = token_id
    return ids


def _namings(kind: VocabularyKind) -> dict[int, _Naming]:
    """By type; enumerations are slow to ask for each of a hundred thousand tokens."""
    return {int(token_type): _naming(kind, token_type) for token_type in TokenType}


def _naming(kind: VocabularyKind, token_type: TokenType) -> _Naming:
    """The naming of ids of a type; an empty name means that text must not produce the id."""
    is_byte_level = kind is VocabularyKind.BYTE_LEVEL
    if token_type is TokenType.USER_DEFINED:
        return (lambda text, _: text) if is_byte_level else (lambda text, _: text.replace(SPACE_MARK, " "))
    if token_type is TokenType.BYTE and not is_byte_level:
        return lambda _, rendered: f"<0x{rendered[0]:02X}>"
    if token_type not in (TokenType.NORMAL, TokenType.BYTE):
        return lambda _text, _rendered: ""
    if kind is VocabularyKind.WORD_PIECE:
        return lambda text, _: text[1:] if text.startswith(SPACE_MARK) else f"{WITHIN_WORD}{text}"
    return lambda text, _: text


def _byte_level(vocabulary: Vocabulary, ids: dict[str, int]) -> Tokenizer:
    rule = vocabulary.rule
    assert rule is not None
    backend = Tokenizer(_listed_merges(vocabulary, ids, ignore_merges=rule.ignores_merges))
    normalizer = rule.build_normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    pre_tokenizer = rule.build()
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    return backend


def _listed_merges(vocabulary: Vocabulary, ids: dict[str, int], **options: Any) -> models.BPE:
    """The file's merges, without those of tokens that text must not produce."""
    merges = merge_pairs(vocabulary.merges, vocabulary.pieces)
    try:
        # The library looks up both parts and the result of each merge. A check before that would take as long again.
        return models.BPE(vocab=ids, merges=merges, **options)
    except Exception:  # it raises bare ones
        require_tokens(dict(enumerate(merges)), vocabulary.pieces)
    merges = [merge for merge in merges if merge[0] in ids and merge[1] in ids and "".join(merge) in ids]
    return models.BPE(vocab=ids, merges=merges, **options)


def _sentencepiece_merges(
    vocabulary: Vocabulary, names: list[str], ids: dict[str, int], as_sentencepiece: bool
) -> Tokenizer:
    options = {"unk_token": _unknown_name(vocabulary, names), "fuse_unk": True, "byte_fallback": True}
    if vocabulary.kind is VocabularyKind.SCORED_MERGES:
        merging = models.BPE(vocab=ids, merges=_merges_by_score(vocabulary, names, ids), **options)
    else:
        merging = _listed_merges(vocabulary, ids, **options)
    backend = Tokenizer(merging)
    steps = _rewriting(vocabulary, as_sentencepiece)
    if vocabulary.adds_space_prefix and not as_sentencepiece:
        steps.append(normalizers.Prepend(SPACE_MARK))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE_MARK)])
    return backend


def _rewriting(vocabulary: Vocabulary, as_sentencepiece: bool) -> list[normalizers.Normalizer]:
    """The changes of a SentencePiece text before spaces are marked."""
    steps: list[normalizers.Normalizer] = []
    if vocabulary.character_map:
        try:
            steps.append(normalizers.Precompiled(vocabulary.character_map))
        except Exception as error:
            raise TokenizerInvalid("tokenizer.ggml.precompiled_charsmap", f"cannot be read: {error}") from error
    if vocabulary.removes_extra_spaces:
        steps += [_without_ends(vocabulary, as_sentencepiece), normalizers.Replace(Regex(" {2,}"), " ")]
    return steps


def _without_ends(vocabulary: Vocabulary, as_sentencepiece: bool) -> normalizers.Normalizer:
    if vocabulary.strips_white_space:
        return normalizers.Strip()
    # SentencePiece strips the mark of spaces too, but only at the end.
    end = rf"[ {SPACE_MARK}]+\z"
    # The space that the caller puts before the text stays; those after it are extra ones.
    keeps_first = as_sentencepiece and vocabulary.adds_space_prefix
    return normalizers.Replace(Regex(end if keeps_first else rf"\A +|{end}"), "")


def _merges_by_score(vocabulary: Vocabulary, names: list[str], ids: dict[str, int]) -> list[tuple[str, str]]:
    """All pairs of tokens that form a token, the best score first; pairs of one token by the ids of the parts."""
    scores = vocabulary.scores
    assert scores is not None
    is_normal = (vocabulary.types == TokenType.NORMAL).tolist()
    ranked: list[tuple[float, int, int, int]] = []
    for token_id, (name, score) in enumerate(zip(names, (-scores).tolist(), strict=True)):
        if not is_normal[token_id] or _is_placeholder(name):
            continue
        for cut in range(1, len(name)):
            left = ids.get(name[:cut])
            right = ids.get(name[cut:]) if left is not None else None
            if left is not None and right is not None:
                ranked.append((score, token_id, left, right))
    ranked.sort()
    return [(names[left], names[right]) for _, _, left, right in ranked]


def _unigram(vocabulary: Vocabulary, names: list[str], as_sentencepiece: bool) -> Tokenizer:
    scores = vocabulary.scores
    assert scores is not None
    if vocabulary.special.unknown is None:
        raise TokenizerInvalid("tokenizer.ggml.unknown_token_id", "missing; a unigram vocabulary needs it")
    is_byte = vocabulary.types == TokenType.BYTE
    entries = list(zip(names, np.where(is_byte, _NEVER, scores).tolist(), strict=True))
    backend = Tokenizer(models.Unigram(entries, vocabulary.special.unknown, byte_fallback=vocabulary.has_all_bytes))
    steps = _rewriting(vocabulary, as_sentencepiece)
    if as_sentencepiece:
        steps.append(normalizers.Replace(" ", SPACE_MARK))  # as in the normalized text of the symbols
    elif vocabulary.adds_space_prefix:  # also before a space, which Metaspace would not do
        steps.append(normalizers.Prepend(SPACE_MARK))
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="never")
    return backend


def _word_piece(vocabulary: Vocabulary, names: list[str], ids: dict[str, int]) -> Tokenizer:
    unknown = _unknown_name(vocabulary, names)
    if unknown is None:
        raise TokenizerInvalid("tokenizer.ggml.unknown_token_id", "missing; a WordPiece vocabulary needs it")
    backend = Tokenizer(models.WordPiece(ids, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=vocabulary.lowercases, strip_accents=vocabulary.strips_accents
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def _unknown_name(vocabulary: Vocabulary, names: list[str]) -> str | None:
    unknown = vocabulary.special.unknown
    if unknown is not None:
        return names[unknown]
    if vocabulary.kind is not VocabularyKind.WORD_PIECE and not vocabulary.has_all_bytes:
        raise TokenizerInvalid(
            "tokenizer.ggml.unknown_token_id", "missing, and not every byte has a token: some text would be lost"
        )
    return None
