"""Prompts of any tokens."""

from __future__ import annotations

import random


def any_tokens(n: int, vocab_size: int, draw: random.Random | None = None) -> list[int]:
    """Draws tokens of a vocabulary, but for those of control at its ends."""
    randrange = (draw or random).randrange
    return [randrange(vocab_size // 8, vocab_size * 7 // 8) for _ in range(n)]
