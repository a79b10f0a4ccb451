"""What is measured: cases of reading prompts and of generating, each at a number of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from imp_service.core.errors import field_invalid

Kind = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Case:
    """`tokens` of one prompt are read, or each of `batch` sequences that hold `depth` tokens generates `tokens`."""

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
        """Tokens that a sequence holds in the end."""
        return self.depth + self.tokens


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Lists of sizes. Every prompt length is a case; so is every generation at every depth and batch.

    Where they are not crossed, depths are of one sequence, and batches begin with nothing.
    """

    prefill: tuple[int, ...] = (512,)
    decode: tuple[int, ...] = (128,)
    depths: tuple[int, ...] = (0,)
    batches: tuple[int, ...] = (1,)
    is_crossed: bool = True
    reps: int = 5
    overhead_batches: tuple[int, ...] = (1, 64)
    overhead_tokens: int = 32

    def __post_init__(self) -> None:
        if any(tokens < 2 for tokens in self.decode):
            raise field_invalid("decode", "1, expected at least 2: time is taken between outputs")

    def cases(self, threads: int) -> list[Case]:
        """All cases at one number of threads, prompts first."""
        return [Case("prefill", threads, tokens) for tokens in self.prefill] + [
            Case("decode", threads, tokens, batch, depth)
            for tokens in self.decode
            for batch, depth in self._generations()
        ]

    def _generations(self) -> list[tuple[int, int]]:
        """Batch and depth of each."""
        if self.is_crossed:
            return [(batch, depth) for depth in self.depths for batch in self.batches]
        return list(dict.fromkeys([(1, depth) for depth in self.depths] + [(batch, 0) for batch in self.batches]))

    def overhead_cases(self, threads: int) -> list[Case]:
        """Short generations, for what a step costs beside its forward pass."""
        return [Case("decode", threads, self.overhead_tokens, batch) for batch in self.overhead_batches]


# What imp's speed is judged by: short and long prompts, one sequence at all depths, many from nothing.
STANDARD = BenchPlan(
    prefill=(512, 2048, 8192),
    decode=(32,),
    depths=(0, 4096, 32768),
    batches=(1, 4, 8, 16, 32),
    is_crossed=False,
)
