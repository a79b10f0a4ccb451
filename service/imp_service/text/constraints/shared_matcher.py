"""The library's object that the sequences of a constraint share, and a count of the memory of all such objects."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher

from imp_service.text.constraints.likely_text import LikelyText

WORD_BITS = 32
# How many lexer states a program may have, step by step. Few constraints need more than the first.
STATE_STEPS = (512, 2048, 8192)
# Measured upper bound of the memory of a state: its row of transitions, its lexemes and the expressions behind them.
STATE_BYTES = 1536


class MemoryLedger:
    """Counts the memory of compiled programs that are in use or cached. Any thread may call."""

    def __init__(self, on_growth: Callable[[], None]) -> None:
        """`on_growth` is called after each charge, on the thread that makes it."""
        self._lock = threading.RLock()
        self._on_growth = on_growth
        self.n_bytes = 0

    def charge(self, owner: object, n_bytes: int) -> None:
        """Counts `n_bytes` for as long as the owner lives."""
        self._add(n_bytes)
        weakref.finalize(owner, self._add, -n_bytes).atexit = False
        self._on_growth()

    def _add(self, n_bytes: int) -> None:
        with self._lock:
            self.n_bytes += n_bytes


class SharedMatcher:
    """The library's state before the first output. Copies of it share the lexer and its states."""

    def __init__(self, matcher: LLMatcher, step: int) -> None:
        self._matcher = matcher
        # The index in STATE_STEPS.
        self.step = step

    def copy(self) -> LLMatcher:
        """A copy for one sequence."""
        return self._matcher.deep_copy()


@dataclass(frozen=True, slots=True)
class MaskVocabulary:
    """The ids that masks cover."""

    # The vocabulary size of the model; the tokenizer may have fewer ids.
    vocab_size: int
    n_known: int
    ends: frozenset[int]
    # Only the ends are allowed.
    end_mask: bytes
    likely: LikelyText

    @classmethod
    def of(cls, vocab_size: int, n_known: int, ends: tuple[int, ...], likely: LikelyText) -> MaskVocabulary:
        """With its mask of ends."""
        bits = np.zeros(n_words(vocab_size) * WORD_BITS, dtype=np.uint8)
        bits[list(ends)] = 1
        return cls(vocab_size, n_known, frozenset(ends), np.packbits(bits, bitorder="little").tobytes(), likely)


def n_words(vocab_size: int) -> int:
    """Words of 32 bits in a mask."""
    return (vocab_size + WORD_BITS - 1) // WORD_BITS
