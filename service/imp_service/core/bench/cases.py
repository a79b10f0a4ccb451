"""The cases of a bench: prompts to prefill and tokens to decode, each with a number of threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from imp_service.core.errors import field_invalid

# Lengths of texts that become vectors, as far as a model takes them.
TEXT_TOKENS = (32, 256)
Kind = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Case:
    """Prefills a prompt of `tokens`, or decodes `tokens` in each of `batch` sequences that hold `depth` tokens."""

    kind: Kind
    threads: int
    tokens: int
    batch: int = 1
    depth: int = 0

    @property
    def label(self) -> str:
        """ "decode 128, batch 4, depth 4096, 2 threads"."""
        words = [f"{self.kind} {self.tokens}"]
        if self.kind == "decode":
            words += [f"batch {self.batch}", f"depth {self.depth}"]
        words.append(f"{self.threads} thread{'s' if self.threads != 1 else ''}")
        return ", ".join(words)

    @property
    def context(self) -> int:
        """Tokens that a sequence holds at the end."""
        return self.depth + self.tokens


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The sizes to measure. Every prompt length is a case, and so is every decode length at every depth and batch.

    If `is_crossed` is false, depths are measured with one sequence, and batches at depth 0.
    """

    prefill: tuple[int, ...] = (512,)
    decode: tuple[int, ...] = (128,)
    depths: tuple[int, ...] = (0,)
    batches: tuple[int, ...] = (1,)
    is_crossed: bool = True
    reps: int = 5
    overhead_batches: tuple[int, ...] = (1, 64)
    overhead_tokens: int = 32
    has_rows: bool = False  # measure the cost of several rows of one sequence, at each depth
    replay: Path | None = None  # a file of known answers, decoded without and with guesses, in each batch
    sparse_prefill: Path | None = None  # a file of prompts, evaluated as a whole and in part
    images: tuple[tuple[int, int], ...] = ()  # width and height of each
    # Calls of a model that makes vectors: texts of each length, so many of them together. Without lengths TEXT_TOKENS.
    text_tokens: tuple[int, ...] = ()
    text_batches: tuple[int, ...] = (1, 64)
    # The first option that has an effect only on a model that generates text; empty: none was given.
    generation_option: str = ""

    def __post_init__(self) -> None:
        if any(tokens < 2 for tokens in self.decode):
            raise field_invalid("decode", "1, expected at least 2: the time between outputs is measured")

    def cases(self, threads: int) -> list[Case]:
        """All cases with one number of threads, prompts first."""
        return [Case("prefill", threads, tokens) for tokens in self.prefill] + [
            Case("decode", threads, tokens, batch, depth)
            for tokens in self.decode
            for batch, depth in self._generations()
        ]

    def _generations(self) -> list[tuple[int, int]]:
        """The batch and depth of each decode case."""
        if self.is_crossed:
            return [(batch, depth) for depth in self.depths for batch in self.batches]
        return list(dict.fromkeys([(1, depth) for depth in self.depths] + [(batch, 0) for batch in self.batches]))

    def overhead_cases(self, threads: int) -> list[Case]:
        """Short generations, to measure the time of a step outside its forward pass."""
        return [Case("decode", threads, self.overhead_tokens, batch) for batch in self.overhead_batches]


# The standard measurement: short and long prompts, one sequence at several depths, and batches at depth 0.
STANDARD = BenchPlan(
    prefill=(512, 2048, 8192),
    decode=(32,),
    depths=(0, 4096, 32768),
    batches=(1, 4, 8, 16, 32),
    is_crossed=False,
)
