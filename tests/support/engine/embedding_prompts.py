"""Prompts in which an encoder reads the embeddings of tokens, so that a model must draw what it draws from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from imp_service import _core
from support.engine.media_prompts import PLACEHOLDER, MediaPrompt


def embeddings_prompt(*pieces: list[int] | tuple[int, ...]) -> tuple[MediaPrompt, list[int]]:
    """Returns a prompt in which lists are text, and tuples are tokens that the encoder reads; and all its tokens."""
    prompt, tokens = MediaPrompt(), list[int]()
    for piece in pieces:
        if isinstance(piece, tuple):
            prompt.spans.append(_core.MediaSpan(_medium(piece), 0, len(prompt.tokens)))
            prompt.tokens += [PLACEHOLDER] * len(piece)
        else:
            prompt.tokens += piece
        tokens += piece
    return prompt, tokens


def _medium(tokens: Sequence[int]) -> _core.Media:
    pixels = b"".join(token.to_bytes(3, "little") for token in tokens)
    return _core.Media(hashlib.sha256(pixels).digest(), [(1, len(tokens), pixels, len(tokens))])


__all__ = ["embeddings_prompt"]
