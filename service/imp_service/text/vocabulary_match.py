"""Compares the vocabulary of a draft model with that of the model that it guesses for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from imp_service.text.directory.recognize import is_directory
from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.piece_types import TokenType
from imp_service.text.tokens.vocabulary import Vocabulary, read_vocabulary

# What makes two files of one vocabulary equal, without building it.
_TABLE_KEYS = ("tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
_TEXT_TYPES = frozenset({TokenType.NORMAL, TokenType.BYTE})


def ids_not_shared(model: Mapping[str, object], draft: Mapping[str, object]) -> tuple[int, ...]:
    """Ids of the draft model that are another token of the model, or none: it must not guess them.

    Both arguments are the metadata of a file. Raises TokenizerInvalid if an ordinary token or a byte differs. Control
    tokens and added tokens may differ, and either vocabulary may be longer.
    """
    if not is_directory(model) and not is_directory(draft) and _have_equal_tables(model, draft):
        return ()
    ours, theirs = _read(model), _read(draft)
    differing = []
    both = zip_longest(ours.token_bytes, theirs.token_bytes)
    for token_id, (found, drafted) in enumerate(both):
        if found is None or drafted is None:
            differing.append(token_id)
            continue
        types = int(ours.types[token_id]), int(theirs.types[token_id])
        if found == drafted and types[0] == types[1]:
            continue
        if types[0] in _TEXT_TYPES and types[1] in _TEXT_TYPES and found != drafted:
            raise TokenizerInvalid(f"token {token_id}", f"is {_quoted(drafted)}, the model's is {_quoted(found)}")
        differing.append(token_id)
    return tuple(token_id for token_id in differing if token_id < len(theirs))


def _have_equal_tables(model: Mapping[str, object], draft: Mapping[str, object]) -> bool:
    return all(key in model and key in draft and _are_equal(model[key], draft[key]) for key in _TABLE_KEYS)


def _are_equal(ours: object, theirs: object) -> bool:
    """Compares texts, lists and arrays."""
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        return np.array_equal(ours, theirs)  # type: ignore[arg-type]
    return ours == theirs


def _read(metadata: Mapping[str, object]) -> Vocabulary:
    if not is_directory(metadata):
        return read_vocabulary(metadata)
    from imp_service.text.directory.tokenizer import read_directory

    n_rows = metadata.get("vocab_size")
    rows = n_rows if isinstance(n_rows, int) else None
    return read_directory(metadata, n_rows=rows, pre=None, end_ids=None)[0]


def _quoted(token: bytes) -> str:
    return json.dumps(token.decode(errors="replace"), ensure_ascii=False)
