"""What is compared: prompts of some lengths, generations at some depths, and generations of some batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.core.bench.cases import Case


@dataclass(frozen=True)
class Scenarios:
    """Lists of sizes; `decode` tokens are generated at each depth alone, and in each batch from nothing.

    `others`: how many CPUs other processes may have during a run that counts.
    """

    prefill: Sequence[int] = (512, 2048, 8192)
    depths: Sequence[int] = (0, 4096, 32768)
    batches: Sequence[int] = (1, 4, 8, 16, 32)
    decode: int = 32
    reps: int = 5
    others: float = 0.1

    def cases(self, threads: int) -> list[Case]:
        """Each once, prompts first."""
        decodes = [(1, depth) for depth in self.depths] + [(batch, 0) for batch in self.batches]
        return [Case("prefill", threads, tokens) for tokens in self.prefill] + [
            Case("decode", threads, self.decode, batch, depth) for batch, depth in dict.fromkeys(decodes)
        ]


QUICK = Scenarios(prefill=(64,), depths=(0, 48), batches=(1, 4), decode=8, reps=2)
