"""What every engine under comparison can do, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from compare.tokens import any_tokens
from imp_service.core.bench.cases import Case

# Name -> module of this folder, class.
ENGINES = {
    "imp": ("imp_engine", "ImpEngine"),
    "llama.cpp": ("llama_cpp_engine", "LlamaCppEngine"),
    "openvino": ("openvino_engine", "OpenVinoEngine"),
    "llama-bench": ("llama_bench_engine", "LlamaBenchEngine"),
    "transformers": ("transformers_engine", "TransformersEngine"),
}


@dataclass(frozen=True)
class Task:
    """What an engine is loaded for: `kv_tokens` over all sequences of the largest case."""

    path: Path
    threads: int
    kv_tokens: int
    vocab_size: int
    llama_bench: str | None = None  # a binary
    settings: Sequence[str] = ()  # of a variant of imp, KEY=VALUE

    def tokens(self, n: int) -> list[int]:
        """Any tokens of the vocabulary."""
        return any_tokens(n, self.vocab_size)


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
