"""Which draft models fit a model: ordinary tokens and bytes are the same, everything else may differ."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from imp_service.config import load as load_config
from imp_service.core import open_file
from imp_service.text.errors import TokenizerInvalid
from imp_service.text.tokens.piece_types import TokenType
from imp_service.text.vocabulary_match import ids_not_shared

TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return dict(open_file(load_config(None, [])).metadata)


def changed(metadata: dict[str, Any], tokens: dict[int, bytes], types: dict[int, int] | None = None) -> dict[str, Any]:
    """Returns the metadata with other tokens and types at these ids."""
    pieces, kinds = list(metadata[TOKENS]), list(metadata[TYPES])
    for token_id, piece in tokens.items():
        pieces[token_id] = piece
    for token_id, kind in (types or {}).items():
        kinds[token_id] = kind
    return {**metadata, TOKENS: pieces, TYPES: kinds}


def control_id(metadata: dict[str, Any]) -> int:
    return next(i for i, kind in enumerate(metadata[TYPES]) if kind == TokenType.CONTROL)


def test_spc_16_equal_vocabularies_share_every_id(model: dict[str, Any]) -> None:
    assert ids_not_shared(model, dict(model)) == ()
    assert ids_not_shared(model, changed(model, {})) == ()
    # The comparison token by token finds the same.
    with mock.patch("imp_service.text.vocabulary_match._have_equal_tables", return_value=False):
        assert ids_not_shared(model, dict(model)) == ()


def test_spc_16_another_token_is_refused_by_its_id(model: dict[str, Any]) -> None:
    first, second = model[TOKENS].index(b"!"), model[TOKENS].index(b",")
    swapped = changed(model, {first: b",", second: b"!"})
    lower = min(first, second)
    with pytest.raises(TokenizerInvalid) as refused:
        ids_not_shared(model, swapped)
    pieces = ('"!"', '","') if lower == second else ('","', '"!"')
    assert str(refused.value) == f"token {lower}: is {pieces[0]}, the model's is {pieces[1]}"


def test_spc_16_control_and_added_tokens_may_differ(model: dict[str, Any]) -> None:
    control = control_id(model)
    assert ids_not_shared(model, changed(model, {control: b"<|other|>"})) == (control,)
    ordinary = len(model[TOKENS]) - 10
    added = changed(model, {ordinary: b"<tool>"}, {ordinary: int(TokenType.USER_DEFINED)})
    assert ids_not_shared(model, added) == (ordinary,)


def test_spc_16_either_vocabulary_may_be_longer(model: dict[str, Any]) -> None:
    longer = {
        **model,
        TOKENS: [*model[TOKENS], b"<|more|>", b"<|again|>"],
        TYPES: [*model[TYPES], int(TokenType.CONTROL), int(TokenType.CONTROL)],
    }
    n = len(model[TOKENS])
    assert ids_not_shared(model, longer) == (n, n + 1)
    assert ids_not_shared(longer, model) == ()
