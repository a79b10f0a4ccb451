"""The compared cases: prefill by prompt length, decode by depth, and decode by batch size."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.core.bench.cases import STANDARD, Case


@dataclass(frozen=True)
class Scenarios:
    """Lists of sizes. `decode` tokens are generated at each depth by one sequence, and at depth 0 by each batch."""

    prefill: Sequence[int] = STANDARD.prefill
    depths: Sequence[int] = STANDARD.depths
    batches: Sequence[int] = STANDARD.batches
    decode: int = STANDARD.decode[0]
    reps: int = 5

    def cases(self, threads: int) -> list[Case]:
        """Returns each case once, prefill first."""
        sizes = {"prefill": self.prefill, "depths": self.depths, "batches": self.batches, "decode": (self.decode,)}
        plan = dataclasses.replace(STANDARD, **{name: tuple(values) for name, values in sizes.items()})
        return plan.cases(threads)


QUICK = Scenarios(prefill=(64,), depths=(0, 48), batches=(1, 4), decode=8, reps=2)
