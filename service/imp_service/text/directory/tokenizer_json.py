"""Reads tokenizer.json: the same facts that a GGUF file states, and the library's objects that the file describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service.text.directory.added_entries import AddedEntry, read_added
from imp_service.text.directory.byte_level_files import VOCAB_FILE
from imp_service.text.directory.json_files import MAX_TOKENIZER_BYTES, JsonObject, read_json_object
from imp_service.text.directory.pipeline import Pipeline, read_pipeline
from imp_service.text.directory.special_names import SpecialNames
from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.added_tokens import MatchRule
from imp_service.text.tokens.pair_form import PairForm
from imp_service.text.tokens.piece_types import TokenType, VocabularyKind, piece_of_word, render_pieces
from imp_service.text.tokens.special_tokens import (
    EOS_OF_CONFIG,
    SpecialIds,
    mark_control,
    read_ends,
    read_suppressed,
)
from imp_service.text.tokens.vocabulary import MAX_TOKENS, Vocabulary, check_pieces, missing_bytes, require_rows

FILE = "tokenizer.json"
_BYTE_NAMES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def read_tokenizer_json(content: bytes) -> JsonObject:
    """The file's object, within its bounds."""
    return read_json_object(FILE, content, max_bytes=MAX_TOKENIZER_BYTES)


def vocabulary_of(
    document: JsonObject,
    names: SpecialNames,
    metadata: Mapping[str, object],
    *,
    n_rows: int | None,
    end_ids: Sequence[int] | None,
) -> Vocabulary:
    """The checked facts. `metadata` is that of config.json, `n_rows` the number of the model's embedding rows."""
    pipeline = read_pipeline(document)
    named = named_ids(document)
    added = read_added(document, names, named, n_rows)
    pieces, types = _pieces_and_types(document, named, added, pipeline.kind, n_rows)
    ids = named | {token.text: token.token_id for token in added}
    roles = {role: ids.get(text) for role, text in names.spelled.items()}
    ends = read_ends({**metadata, EOS_OF_CONFIG: roles.get("eos_token")}, pieces, types, end_ids)
    before, after = _around(document, pipeline, roles, names, len(pieces))
    special = SpecialIds(
        bos=_first_of(roles.get("bos_token"), roles.get("cls_token"), *before),
        eos=roles.get("eos_token"),
        unknown=_first_of(*np.flatnonzero(types == TokenType.UNKNOWN).tolist(), roles.get("unk_token")),
        separator=roles.get("sep_token"),
        ends=ends,
        suppressed=read_suppressed(metadata, len(pieces)),
    )
    return Vocabulary(
        kind=pipeline.kind,
        place=document.path,
        pre="",
        rule=None,
        cut_rules=pipeline.cut_rules,
        pieces=tuple(pieces),
        token_bytes=render_pieces(pipeline.kind, pieces, types),
        types=types,
        scores=None,
        merges=(),
        missing_bytes=missing_bytes(document.path, pieces) if pipeline.kind is VocabularyKind.BYTE_LEVEL else b"",
        special=special,
        match_rules={token.token_id: token.match_rule for token in added if token.match_rule != MatchRule()},
        before=before,
        after=after,
        pair=_checked_pair(document, pipeline, len(pieces)),
        prefix=pipeline.prefix,
        # WordPiece has no token with a space.
        removes_extra_spaces=not pipeline.is_lossless and pipeline.kind is not VocabularyKind.WORD_PIECE,
        strips_white_space=False,
        character_map=b"",
        lowercases=False,
        strips_accents=False,
    )


def named_ids(document: JsonObject) -> dict[str, int]:
    """The ids of the model's own vocabulary, without the added tokens, by name."""
    model = document.object("model")
    assert model is not None  # read_pipeline refuses it
    # vocab.json has the names and nothing else, without a key.
    place = document.path if document.path == VOCAB_FILE else f"{model.path}.vocab"
    vocab = model.members.get("vocab")
    if isinstance(vocab, list):
        names = [entry[0] if isinstance(entry, list) and entry else None for entry in vocab]
        found: dict[Any, Any] = dict(zip(names, range(len(names)), strict=True))
        if len(found) != len(names):
            raise TokenizerInvalid(place, "a token twice")
    elif isinstance(vocab, dict):
        found = vocab
    else:
        raise TokenizerInvalid(place, "missing")
    if not found:
        raise TokenizerInvalid(place, "empty")
    if set(map(type, found)) != {str} or set(map(type, found.values())) != {int}:
        raise TokenizerInvalid(place, "expected names of tokens, each with an id")
    if min(found.values()) < 0 or len(set(found.values())) != len(found):
        raise TokenizerInvalid(place, "expected ids from 0, each once")
    return found


def _pieces_and_types(
    document: JsonObject,
    named: Mapping[str, int],
    added: list[AddedEntry],
    kind: VocabularyKind,
    n_rows: int | None,
) -> tuple[list[bytes], NDArray[np.uint8]]:
    model = document.object("model")
    assert model is not None  # read_pipeline refuses it
    n_tokens = 1 + max(0, *named.values(), *(token.token_id for token in added))
    if n_tokens > MAX_TOKENS:
        raise TokenizerInvalid(document.path, f"{n_tokens} tokens, limit {MAX_TOKENS}")
    if n_rows is not None:  # before room is made for each id up to the greatest
        require_rows(document.path, n_tokens, n_rows)
    texts = [""] * n_tokens
    types = np.full(n_tokens, TokenType.UNUSED, dtype=np.uint8)
    unknown = unknown_id(model, named)
    is_word_piece = kind is VocabularyKind.WORD_PIECE
    for text, token_id in named.items():
        texts[token_id] = piece_of_word(text) if is_word_piece and token_id != unknown else text
    types[list(named.values())] = TokenType.NORMAL
    if kind is not VocabularyKind.BYTE_LEVEL and model.flag("byte_fallback"):
        types[[named[name] for name in _BYTE_NAMES if name in named]] = TokenType.BYTE
    for token in added:
        if named.get(token.text) != token.token_id and texts[token.token_id]:
            raise document.fail("added_tokens", f"{token.text!r:.40}: id {token.token_id} is another token's")
        texts[token.token_id] = token.text
        types[token.token_id] = TokenType.CONTROL if token.is_special else TokenType.USER_DEFINED
    pieces = [text.encode() for text in texts]
    check_pieces(document.path, pieces)
    mark_control(pieces, types)
    if unknown is not None:
        types[unknown] = TokenType.UNKNOWN
    types.flags.writeable = False
    return pieces, types


def unknown_id(model: JsonObject, named: Mapping[str, int]) -> int | None:
    """The token of what the vocabulary cannot spell. `named` are the ids of the model's own tokens."""
    if "unk_id" in model.members:
        found = model.members["unk_id"]
        if found is not None and (type(found) is not int or not 0 <= found < len(named)):
            raise model.fail("unk_id", f"{found!r:.40}, expected a token id")
        return found
    name = model.text("unk_token")
    if not name:
        return None
    if name not in named:
        raise model.fail("unk_token", f"{name!r:.40}: not in the vocabulary")
    return named[name]


def _first_of(*ids: int | None) -> int | None:
    return next((token_id for token_id in ids if token_id is not None), None)


def _around(
    document: JsonObject, pipeline: Pipeline, roles: Mapping[str, int | None], names: SpecialNames, n_tokens: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids before and after a text.

    If there is a tokenizer.json, it states them, and transformers ignores the flags of the configuration. With the
    other files the flags count.
    """
    before, after = pipeline.around.before, pipeline.around.after
    bos, eos = roles.get("bos_token"), roles.get("eos_token")
    if document.path != FILE and names.adds_bos is not None:
        before = (bos,) if names.adds_bos and bos is not None else ()
    if document.path != FILE and names.adds_eos is not None:
        after = (eos,) if names.adds_eos and eos is not None else ()
    _require_ids(document, (*before, *after), n_tokens)
    return before, after


def _checked_pair(document: JsonObject, pipeline: Pipeline, n_tokens: int) -> PairForm | None:
    pair = pipeline.around.pair
    if pair is not None:
        _require_ids(document, (*pair.before, *pair.between, *pair.after), n_tokens)
    return pair


def _require_ids(document: JsonObject, ids: Sequence[int], n_tokens: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < n_tokens:
            raise document.fail("post_processor", f"token id {token_id}, expected 0 to {n_tokens - 1}")
