"""What imp is to reach in a comparison, as data, and whether it did.

A goal holds for the medians. Those of speed are stated for two threads and more, but for one that has a number of its
own for one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.compare_peers.outcome import IMP, Outcome, Start
from imp_service.core.bench.cases import Case

LLAMA_CPP = "llama.cpp"
MANY = 10**9


@dataclass(frozen=True)
class Goal:
    """Of the cases whose sizes lie in the ranges, ends included, and whose products are of one of the kinds.

    `in_best` and `in_llama_cpp`: imp's speed in theirs; `fraction`: of the ceiling. Nothing is asked where they are 0.
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
        """Whether the case is one of them."""
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
# Of a process, over the file, the cache and the scratch that was planned.
PEAK_MEMORY = 1.10
# Of a prompt's speed with one thread, by each of several.
PER_THREAD = 0.95


@dataclass(frozen=True)
class Verdict:
    """What was found, and the least, or the most, that was asked for."""

    of: str
    found: float
    asked: float
    is_least: bool = True

    @property
    def is_met(self) -> bool:
        """The goal itself meets it."""
        return self.found >= self.asked if self.is_least else self.found <= self.asked

    @property
    def words(self) -> str:
        """ "1.62 × llama.cpp (at least 1.8: missed)"."""
        bound, end = "at least" if self.is_least else "at most", "met" if self.is_met else "missed"
        return f"{self.found:.2f} × {self.of} ({bound} {self.asked:.2g}: {end})"

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return {"of": self.of, "found": self.found, "asked": self.asked, "met": self.is_met}


def verdicts(outcome: Outcome) -> list[Verdict]:
    """Of every goal that is stated for the case, beside the peers that took it."""
    (peak,) = outcome.work.keys() - {"tokens", "bytes"}
    best, found = outcome.best_peer, []
    for goal in (goal for goal in GOALS if goal.is_for(outcome.case, peak)):
        is_alone = outcome.case.threads == 1
        if best is not None and not is_alone:
            found.append((f"{best}, the best peer", outcome.ratio(best).median, goal.in_best))
        if LLAMA_CPP in outcome.engines and not is_alone:
            found.append((LLAMA_CPP, outcome.ratio(LLAMA_CPP).median, goal.in_llama_cpp))
        of_ceiling = goal.fraction_of_one_thread if is_alone else goal.fraction
        found.append(("the ceiling", outcome.fraction(IMP).median, of_ceiling))
    return [Verdict(of, value, asked) for of, value, asked in found if asked]


def start_verdicts(start: Start) -> list[Verdict]:
    """Of the memory that a start took, where it was planned."""
    if start.planned_bytes is None:
        return []
    found = start.peak_bytes.median / start.planned_bytes
    return [Verdict("file, cache and scratch", found, PEAK_MEMORY, is_least=False)]


def scaling(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Of prompts that were read with one thread and with more: the speed of each thread in that of one alone."""

    def speed(outcome: Outcome) -> float:
        return outcome.tokens_per_s(IMP).median

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


def verdict_line(found: Sequence[Verdict]) -> str:
    """All in one; empty where nothing is asked."""
    return "; ".join(verdict.words for verdict in found)
