"""The goals of imp in a comparison.

A goal applies to the medians. Goals of speed apply from two threads on. One goal has a separate number for one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.goals import Verdict
from compare.outcome import IMP, Outcome
from imp_service.core.bench.cases import Case

LLAMA_CPP = "llama.cpp"
MANY = 10**9


@dataclass(frozen=True)
class Goal:
    """A goal for cases with sizes in the ranges (ends included) and products of one of the kinds.

    `in_best`, `in_llama_cpp`: the least ratio of imp's speed to theirs. `fraction`: of the ceiling. 0: no goal.
    """

    kind: str
    peaks: frozenset[str]
    tokens: tuple[int, int] = (1, MANY)
    depth: tuple[int, int] = (0, MANY)
    batch: tuple[int, int] = (1, MANY)
    in_best: float = 0.0
    in_llama_cpp: float = 0.0
    fraction: float = 0.0
    fraction_of_one_thread: float = 0.0

    def is_for(self, case: Case, peak: str) -> bool:
        """Whether the goal applies to the case."""
        sizes = ((case.tokens, self.tokens), (case.depth, self.depth), (case.batch, self.batch))
        return (
            case.kind == self.kind
            and peak in self.peaks
            and all(least <= size <= most for size, (least, most) in sizes)
        )


INT8, BF16 = frozenset({"int8"}), frozenset({"bf16"})
GOALS = (
    Goal("prefill", INT8, tokens=(512, 2048), in_best=1.4, in_llama_cpp=3.5, fraction=0.62),
    Goal("prefill", BF16, tokens=(512, 2048), in_best=1.15, fraction=0.70),
    Goal("prefill", INT8 | BF16, tokens=(8192, MANY), in_best=1.8, fraction=0.50),
    Goal(
        *("decode", INT8), depth=(0, 0), batch=(1, 1),
        in_best=1.15, in_llama_cpp=1.35, fraction=0.90, fraction_of_one_thread=0.80,
    ),
    Goal("decode", INT8 | BF16, depth=(4096, MANY), batch=(1, 1), in_best=1.5, in_llama_cpp=3.0, fraction=0.85),
    Goal("decode", INT8, depth=(0, 0), batch=(4, MANY), in_best=1.8, fraction=0.50),
)  # fmt: skip
# Peak memory of a process, relative to the file plus the planned cache and scratch.
PEAK_MEMORY = 1.10
# Prefill speed per thread with several threads, relative to one thread.
PER_THREAD = 0.95


def verdicts(outcome: Outcome) -> list[Verdict]:
    """Returns a verdict on each goal of the case, against the peers that ran it."""
    if outcome.case.kind == "start":
        found = outcome.spread(IMP, "peak_bytes").median / outcome.spread(IMP, "planned_bytes").median
        return [Verdict("file, cache and scratch, at the peak of memory", found, PEAK_MEMORY, is_least=False)]
    best, found = outcome.best_peer, []
    for goal in (goal for goal in GOALS if goal.is_for(outcome.case, outcome.work.peak)):
        is_alone = outcome.case.threads == 1
        if best is not None and not is_alone:
            found.append((f"{best}, the best peer", outcome.ratio(best).median, goal.in_best))
        if LLAMA_CPP in outcome.engines and not is_alone:
            found.append((LLAMA_CPP, outcome.ratio(LLAMA_CPP).median, goal.in_llama_cpp))
        of_ceiling = goal.fraction_of_one_thread if is_alone else goal.fraction
        found.append(("the ceiling", outcome.fraction(IMP).median, of_ceiling))
    return [Verdict(of, value, asked) for of, value, asked in found if asked]


def scaling(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Returns verdicts on how prefill scales with threads: the speed per thread relative to one thread."""

    def speed(outcome: Outcome) -> float:
        return outcome.spread(IMP).median

    prompts = [outcome for outcome in outcomes if outcome.case.kind == "prefill"]
    alone = {outcome.case.tokens: outcome for outcome in prompts if outcome.case.threads == 1}
    return [
        Verdict(
            f"one thread, in each of {case.label}",
            speed(outcome) / case.threads / speed(alone[case.tokens]),
            PER_THREAD,
        )
        for outcome in prompts
        if (case := outcome.case).threads > 1 and case.tokens in alone
    ]
