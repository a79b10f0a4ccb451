"""Runs a case on each engine in turn, and repeats rounds that other processes disturbed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from compare.ceiling import LeastWork, Rates
from compare.outcome import IMP, Case, Outcome, Round, Run, Sample
from compare.refused import RefusedError

ShowProgress = Callable[[str], None]

CLOCK_ERROR = 0.03  # seconds; the kernel counts CPU time in hundredths
TRIES_PER_ROUND = 3


class Engine(Protocol):
    """An engine or a server that is loaded. One case is prepared at a time."""

    @property
    def name(self) -> str:
        """Its name in the table; "imp" is the one that is compared."""

    def prepare(self, case: Any) -> None:
        """Makes room for the case and warms up. Raises RefusedError if the engine cannot run it."""

    def run(self, case: Any) -> Run:
        """Runs the prepared case once."""

    def release(self) -> None:
        """Forgets the case, also one that was refused halfway."""


@dataclass(frozen=True)
class Rules:
    """How many quiet rounds are wanted, and what other processes may use of the CPUs in a quiet round."""

    reps: int
    others: float = 0.1


def compare(case: Case, engines: Sequence[Engine], work: LeastWork, rules: Rules, show: ShowProgress) -> Outcome:
    """Runs rounds over all engines that accept the case.

    Raises RefusedError if imp refuses the case, or if an engine fails after it accepted the case.
    """
    refusals = prepare(case, engines, show)
    ready = [engine for engine in engines if engine.name not in refusals]
    rounds: list[Round] = []
    while sum(not each.is_disturbed for each in rounds) < rules.reps and len(rounds) < TRIES_PER_ROUND * rules.reps:
        first = len(rounds) % len(ready)
        turn = [*ready[first:], *ready[:first]]
        show(f"{case.label}: round {len(rounds) + 1}")
        rounds.append(one_round(case, turn, work.probe, rules.others))
    for engine in ready:
        engine.release()
    kept = [each for each in rounds if not each.is_disturbed]
    # If no round was quiet, keep the least disturbed ones. The outcome is then marked as disturbed.
    quietest = sorted(rounds, key=lambda each: each.others)[: rules.reps]
    return Outcome(case, work, kept or quietest, len(rounds) - len(kept), refusals)


def prepare(case: Case, engines: Sequence[Engine], show: ShowProgress) -> dict[str, str]:
    """Prepares the engines. Returns why some of them refuse the case."""
    refusals = {}
    for engine in engines:
        show(f"{case.label}: preparing {engine.name}")
        try:
            engine.prepare(case)
        except RefusedError as refusal:
            if engine.name == IMP:
                raise RefusedError(f"{case.label}: {refusal}") from None
            refusals[engine.name] = str(refusal)
            with suppress(RefusedError):  # its process may have ended
                engine.release()
    return refusals


def one_round(case: Case, engines: Sequence[Engine], probe: Callable[[], Rates], others: float) -> Round:
    """Runs each engine once, right after a probe of the ceilings."""
    samples = {}
    for engine in engines:
        rates = probe()
        run = engine.run(case)
        samples[engine.name] = Sample(run, rates, run.others > others + CLOCK_ERROR / run.seconds)
    return Round(samples)
