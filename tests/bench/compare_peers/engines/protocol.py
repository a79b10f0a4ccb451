"""What every engine under comparison can do, in a process of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from imp_service.core.bench.cases import Case
from support.needed import PEERS


class RefusedError(Exception):
    """The engine does not run the file, or the case; the message says why."""


def not_installed(missing: ImportError) -> RefusedError:
    """Returns the refusal of an engine whose packages are not installed."""
    return RefusedError(f"not installed ({PEERS}): {missing}")


@dataclass(frozen=True)
class Task:
    """What an engine is loaded for: `kv_tokens` over all sequences of the largest case."""

    path: Path
    threads: int
    kv_tokens: int
    vocab_size: int
    llama_bench: str | None = None  # a binary

    def tokens(self, n: int) -> list[int]:
        """Any tokens of the vocabulary, but for the few of control at its ends."""
        return [random.randrange(self.vocab_size // 8, self.vocab_size * 7 // 8) for _ in range(n)]


class Engine(Protocol):
    """Loaded when it is made. One case is prepared at a time."""

    def prepare(self, case: Case) -> None:
        """Makes room and fills the cache up to the case's depth."""

    def run(self) -> float:
        """Seconds of the prepared case.

        Of a prompt: from its first step to its logits. Of a generation: all steps after each sequence's first output.
        """

    def release(self) -> None:
        """Forgets the case, also one that was refused halfway."""
