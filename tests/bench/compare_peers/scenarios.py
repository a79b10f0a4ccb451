"""What is compared: prompts of some lengths, generations at some depths, and generations of some batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.core.bench.cases import STANDARD, Case


@dataclass(frozen=True)
class Scenarios:
    """Lists of sizes; `decode` tokens are generated at each depth alone, and in each batch from nothing.

    `others`: how many CPUs other processes may have during a run that counts.
    """

    prefill: Sequence[int] = STANDARD.prefill
    depths: Sequence[int] = STANDARD.depths
    batches: Sequence[int] = STANDARD.batches
    decode: int = STANDARD.decode[0]
    reps: int = 5
    others: float = 0.1

    def cases(self, threads: int) -> list[Case]:
        """Each once, prompts first."""
        sizes = {"prefill": self.prefill, "depths": self.depths, "batches": self.batches, "decode": (self.decode,)}
        plan = dataclasses.replace(STANDARD, **{name: tuple(values) for name, values in sizes.items()})
        return plan.cases(threads)


QUICK = Scenarios(prefill=(64,), depths=(0, 48), batches=(1, 4), decode=8, reps=2)
