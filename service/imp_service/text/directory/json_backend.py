"""Builds the library's objects of a tokenizer.json so that plain text never becomes a special token."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from imp_service.text.directory.json_files import JsonObject
from imp_service.text.directory.pattern_cost import FASTER, is_superlinear
from imp_service.text.directory.pipeline import KNOWN_PATTERNS, parts_of, pattern_of
from imp_service.text.directory.tokenizer_json import named_ids
from imp_service.text.tokens.added_tokens import AS_SPELLED, library_token
from imp_service.text.tokens.backends import Backends, library_boundary
from imp_service.text.tokens.encoders import LibraryEncoder
from imp_service.text.tokens.library_tokenizer import placeholder
from imp_service.text.tokens.piece_types import SPECIAL_TYPES, WITHIN_WORD, TokenType, VocabularyKind
from imp_service.text.tokens.splitter import Splitter
from imp_service.text.tokens.vocabulary import MAX_MERGES, Vocabulary

# Published patterns have up to 400 characters, and those of a file take less than 0.1 s to try.
_MOST_PATTERN = 2048
_MOST_PROBE_SECONDS = 2.0
# The longest word that WordPiece looks at, by default and at the most: its time grows with the square.
_WORD_CHARS, _MOST_WORD_CHARS = 100, 1000
_BPE_OPTIONS = ("fuse_unk", "byte_fallback", "ignore_merges")


def build_backends(document: JsonObject, vocabulary: Vocabulary) -> Backends:
    """Raises TokenizerInvalid for what the library refuses."""
    with library_boundary(document.path):
        _require_short(document)
        _require_plain_matches(document, vocabulary)
        normalizer, pre_tokenizer = _around_model(document)
        _require_linear(document)
        names = _names(document, vocabulary)
        model = _model(document, vocabulary, names)
        added = _found_in_any_text(vocabulary)
        library = _assembled(model, normalizer, pre_tokenizer, vocabulary, added)
        first = rest = LibraryEncoder(library, _renumbered(library, added))
        if vocabulary.adds_space_prefix:
            within = _within_text(added, vocabulary, normalizer)
            of_rest = _assembled(model, *_around_model(document, takes_prefix=False), vocabulary, within)
            rest = LibraryEncoder(of_rest, _renumbered(of_rest, within))
        return Backends(first, rest, Splitter(vocabulary, normalizer), lambda: library)


def _within_text(
    added: Mapping[str, int], vocabulary: Vocabulary, normalizer: normalizers.Normalizer | None
) -> dict[str, int]:
    """The spellings after other text. The library normalizes each as a text of its own, with the space before it."""
    found = {}
    for text, token_id in added.items():
        is_normalized = vocabulary.match_rules.get(token_id, AS_SPELLED).is_normalized
        found[normalizer.normalize_str(text) if normalizer is not None and is_normalized else text] = token_id
    return found


def _renumbered(library: Tokenizer, added: Mapping[str, int]) -> dict[int, int]:
    numbers = ((library.token_to_id(text), token_id) for text, token_id in added.items())
    return {found: i for found, i in numbers if found is not None and found != i}


def _around_model(
    document: JsonObject, *, takes_prefix: bool = True
) -> tuple[normalizers.Normalizer | None, pre_tokenizers.PreTokenizer | None]:
    """The file's normalizer and pre-tokenizer, with or without the parts that put a space before a text."""
    parts = {name: _with_fast_patterns(document.members.get(name)) for name in ("normalizer", "pre_tokenizer")}
    if not takes_prefix:
        parts = {name: _without_prefix(part) for name, part in parts.items()}
    model = {"type": "BPE", "vocab": {}, "merges": []}
    library = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **parts}))
    return library.normalizer, library.pre_tokenizer


def _require_plain_matches(document: JsonObject, vocabulary: Vocabulary) -> None:
    """BERT's normalizer puts spaces around Chinese characters. A token that strips them would take the character."""
    for token_id, match_rule in vocabulary.match_rules.items():
        strips = match_rule.strips_left or match_rule.strips_right
        if vocabulary.kind is VocabularyKind.WORD_PIECE and match_rule.is_normalized and strips:
            name = vocabulary.pieces[token_id].decode()
            raise document.fail("added_tokens", f"{name!r:.40}: normalized and strips spaces, expected one of them")


def _require_short(document: JsonObject) -> None:
    """The time to compile a pattern may grow with the square of its length, where letters match in any case."""
    for name in ("normalizer", "pre_tokenizer"):
        for part in parts_of(document, name):
            if (pattern := pattern_of(part)) is not None and len(pattern) > _MOST_PATTERN:
                raise part.fail("pattern", f"{len(pattern)} characters, limit {_MOST_PATTERN}")


def _require_linear(document: JsonObject) -> None:
    end = time.thread_time() + _MOST_PROBE_SECONDS
    for name in ("normalizer", "pre_tokenizer"):
        for part in parts_of(document, name):
            pattern = pattern_of(part)
            if pattern is None or pattern in KNOWN_PATTERNS or pattern in FASTER:
                continue
            if is_superlinear(pattern, end=end):
                raise part.fail("pattern", f"{pattern!r:.80}: its time grows faster than the text")


def _with_fast_patterns(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_fast_patterns(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    if set(part) == {"Regex"} and isinstance(part["Regex"], str):
        return {"Regex": FASTER.get(part["Regex"], part["Regex"])}
    return {name: _with_fast_patterns(value) for name, value in part.items()}


def _without_prefix(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_prefix(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "Prepend":
            return {"type": "Sequence", "normalizers": []}
        case "Metaspace":
            return {**part, "prepend_scheme": "never", "add_prefix_space": False}
        case "ByteLevel":
            return {**part, "add_prefix_space": False}
    return {name: _without_prefix(value) for name, value in part.items()}


def _assembled(
    model: models.Model,
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    vocabulary: Vocabulary,
    added: Mapping[str, int],
) -> Tokenizer:
    library = Tokenizer(model)
    if normalizer is not None:
        library.normalizer = normalizer
    if pre_tokenizer is not None:
        library.pre_tokenizer = pre_tokenizer
    library.add_tokens([library_token(text, vocabulary.match_rules.get(i, AS_SPELLED)) for text, i in added.items()])
    return library


def _found_in_any_text(vocabulary: Vocabulary) -> dict[str, int]:
    """The added tokens that are no special ones, by spelling; of two that are spelled alike, the first."""
    found: dict[str, int] = {}
    for token_id in (vocabulary.types == TokenType.USER_DEFINED).nonzero()[0].tolist():
        found.setdefault(vocabulary.pieces[token_id].decode(), token_id)
    return found


def _model(document: JsonObject, vocabulary: Vocabulary, names: list[str]) -> models.Model:
    model = document.object("model")
    assert model is not None  # it was read
    unknown = vocabulary.special.unknown
    if unknown is None and vocabulary.kind is not VocabularyKind.BYTE_LEVEL and not vocabulary.has_all_bytes:
        raise model.fail("unk_token", "missing, and not every byte has a token: some text would be lost")
    if vocabulary.kind is VocabularyKind.UNIGRAM:
        return _unigram(model, names)
    if vocabulary.kind is VocabularyKind.WORD_PIECE:
        assert unknown is not None  # it was refused
        return _word_piece(model, names, names[unknown])
    return _pair_merging(model, names, vocabulary)


def _names(document: JsonObject, vocabulary: Vocabulary) -> list[str]:
    """Returns the name of each id for the library's vocabulary; a placeholder if no text may become this id.

    The vocabulary must not contain an added token that the model matches only in some places, because the library would
    match it everywhere.
    """
    names = [piece.decode() for piece in vocabulary.pieces]
    hidden = set(np.isin(vocabulary.types, SPECIAL_TYPES).nonzero()[0].tolist())
    is_word_piece = vocabulary.kind is VocabularyKind.WORD_PIECE
    own = named_ids(document) if vocabulary.match_rules or is_word_piece else {}
    if is_word_piece:  # whose pieces are spelled in another way
        for name, token_id in own.items():
            names[token_id] = name
    for token_id, match_rule in vocabulary.match_rules.items():
        if (match_rule.is_whole_word or match_rule.is_normalized) and names[token_id] not in own:
            hidden.add(token_id)
    for token_id in hidden:
        names[token_id] = placeholder(token_id)
    if len(set(names)) < len(names):  # of two that are spelled alike the first one is produced
        seen: set[str] = set()
        for token_id, name in enumerate(names):
            names[token_id] = placeholder(token_id) if name in seen else name
            seen.add(name)
    return names


def _unigram(model: JsonObject, names: list[str]) -> models.Model:
    scores: list[float] = []
    for entry in model.array("vocab"):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], int | float):
            raise model.fail("vocab", "expected pairs of a token and a number")
        scores.append(entry[1])
    # The other tokens are found before the model sees the text, so their scores do not matter. The lowest score is used
    # for them because the library derives the score of the unknown token from it.
    scores += [min(scores)] * (len(names) - len(scores))
    return models.Unigram(
        list(zip(names, scores, strict=True)), model.members.get("unk_id"), byte_fallback=model.flag("byte_fallback")
    )


def _word_piece(model: JsonObject, names: list[str], unknown: str) -> models.Model:
    prefix = model.members.get("continuing_subword_prefix", WITHIN_WORD)
    if prefix != WITHIN_WORD:
        raise model.fail("continuing_subword_prefix", f"{prefix!r:.40}, expected {WITHIN_WORD}")
    most = model.members.get("max_input_chars_per_word", _WORD_CHARS)
    if type(most) is not int or not 1 <= most <= _MOST_WORD_CHARS:
        raise model.fail("max_input_chars_per_word", f"{most!r:.40}, expected 1 to {_MOST_WORD_CHARS}")
    ids = dict(zip(names, range(len(names)), strict=True))
    return models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=most)


def _pair_merging(model: JsonObject, names: list[str], vocabulary: Vocabulary) -> models.Model:
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.text(name):
            raise model.fail(name, f"{model.text(name)!r:.40}, expected none")
    ids = dict(zip(names, range(len(names)), strict=True))
    options: dict[str, Any] = {name: model.flag(name) for name in _BPE_OPTIONS}
    if vocabulary.special.unknown is not None and model.text("unk_token"):
        options["unk_token"] = names[vocabulary.special.unknown]
    return models.BPE(vocab=ids, merges=_merges(model, vocabulary), **options)


def _merges(model: JsonObject, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The pairs, without those that have to do with a special token."""
    lines = model.array("merges")
    if len(lines) > MAX_MERGES:
        raise model.fail("merges", f"{len(lines)} merges, limit {MAX_MERGES}")
    pairs = [tuple(line.split(" ")) if isinstance(line, str) else line for line in lines]
    if (
        not {tuple, list} >= set(map(type, pairs))
        or set(map(len, pairs)) - {2}
        or set(map(type, chain(*pairs))) - {str}
    ):
        rank = next(rank for rank, pair in enumerate(pairs) if not _is_pair(pair))
        raise model.fail(f"merges[{rank}]", "expected two tokens")
    special = np.isin(vocabulary.types, SPECIAL_TYPES).nonzero()[0].tolist()
    hidden = {vocabulary.pieces[token_id].decode() for token_id in special}
    return [
        (left, right)
        for left, right in pairs
        if left not in hidden and right not in hidden and left + right not in hidden
    ]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
