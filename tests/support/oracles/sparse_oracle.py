"""The expected choice of a prompt's tokens, and the outputs of a script model after them, without blocks or batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from support.oracles.script_oracle import MASK64, Sampler, mix, sample

CHUNK = 32
LOOKAHEAD = 8
GREEDY = Sampler()


def chosen(
    tokens: Sequence[int],
    importance: Sequence[float],
    keep: Fraction,
    *,
    anchors: int = 1,
    control: Sequence[int] = (),
    backbone: Fraction = Fraction(0),
) -> list[int]:
    """Returns the indices of the kept tokens, by the definition."""
    chunks = [list(range(first, min(first + CHUNK, len(tokens)))) for first in range(0, len(tokens), CHUNK)]
    least_chunks = max(1, math.ceil(len(chunks) * keep))
    least_tokens = max(1, math.ceil(len(tokens) * keep))
    kept = {
        i
        for i, chunk in enumerate(chunks)
        if i < anchors or i >= len(chunks) - anchors or any(tokens[at] in control for at in chunk)
    }
    n_strata = math.ceil(len(chunks) * backbone)
    kept |= {math.floor(Fraction(2 * i + 1, 2 * n_strata) * len(chunks)) for i in range(n_strata)}
    means = [sum(importance[at] for at in chunk) / len(chunk) for chunk in chunks]
    for i in sorted(range(len(chunks)), key=lambda i: (-means[i], i)):
        if len(kept) >= least_chunks and sum(len(chunks[at]) for at in kept) >= least_tokens:
            break
        kept.add(i)
    return [at for i in sorted(kept) for at in chunks[i]]


def script_importance(tokens: Sequence[int]) -> list[float]:
    """Returns what a script draft finds of each token: the mean over its queries, which all pay the same attention."""
    found = []
    for token in tokens:
        paid, total = np.float32((mix(token + 1) >> 40) * 2.0**-24), np.float32(0)
        for _ in range(LOOKAHEAD):
            total += paid
        found.append(float(total / np.float32(LOOKAHEAD)))
    return found


def sparse_continuation(
    prompt: Sequence[int], kept: Sequence[int], n: int, sampler: Sampler = GREEDY, *, sequence: int = 0
) -> list[int]:
    """Returns the first n outputs of the script model that holds these positions of the prompt."""
    cells = [(prompt[position], position) for position in kept]
    history = list(prompt)
    for _ in range(n):
        state = 0
        for cell, (token, position) in enumerate(cells):
            state = mix(state ^ (token + 1) ^ (position - cell << 32))
        row = [(mix((state + i) & MASK64) >> 40) / (1 << 21) for i in range(16)]
        drawn = sample(row, sampler, history, len(history) - len(prompt), sequence=sequence)
        cells.append((drawn, len(history)))
        history.append(drawn)
    return history[len(prompt) :]
