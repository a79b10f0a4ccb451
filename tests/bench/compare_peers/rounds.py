"""Runs a case on each engine in turn, and repeats rounds that other processes disturbed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from bench.compare_peers.engine_process import EngineProcess
from bench.compare_peers.engines.protocol import RefusedError
from bench.compare_peers.outcome import Outcome, Round, Sample
from bench.compare_peers.scenarios import Scenarios
from imp_service.core.bench.cases import Case

ShowProgress = Callable[[str], None]

CLOCK_ERROR = 0.03  # seconds; the kernel counts CPU time in hundredths
TRIES_PER_ROUND = 3


def compare(case: Case, engines: Sequence[EngineProcess], scenarios: Scenarios, show: ShowProgress) -> Outcome:
    """Runs rounds over all engines that accept the case. The first of `engines` is imp.

    Raises RefusedError if imp refuses the case, or if an engine fails after it accepted the case.
    """
    reps = scenarios.reps
    imp, refusals, ready = engines[0], {}, []
    for engine in engines:
        show(f"{case.label}: preparing {engine.name}")
        try:
            engine.ask("prepare", case)
            engine.timed_run()  # warms up
            ready.append(engine)
        except RefusedError as refusal:
            if engine is imp:
                raise RefusedError(f"{case.label}: {refusal}") from None
            refusals[engine.name] = str(refusal)
            with suppress(RefusedError):  # its process may have ended
                engine.ask("release")
    rounds: list[Round] = []
    while sum(not round_.is_disturbed for round_ in rounds) < reps and len(rounds) < TRIES_PER_ROUND * reps:
        show(f"{case.label}: round {len(rounds) + 1}")
        rounds.append(one_round(imp, ready, len(rounds), scenarios.others))
    work = imp.ask("work")
    for engine in ready:
        engine.ask("release")
    kept = [round_ for round_ in rounds if not round_.is_disturbed]
    # If no round was quiet, keep the least disturbed ones. The outcome is then marked as disturbed.
    quietest = sorted(rounds, key=lambda round_: round_.others)[:reps]
    return Outcome(case, work, kept or quietest, len(rounds) - len(kept), refusals)


def one_round(imp: EngineProcess, engines: Sequence[EngineProcess], number: int, others_at_most: float) -> Round:
    """Runs each engine once, right after a probe of the ceilings. The engine that goes first alternates."""
    first = number % len(engines)
    samples = {}
    for engine in [*engines[first:], *engines[:first]]:
        rates = imp.ask("probe")
        seconds, others = engine.timed_run()
        is_disturbed = others > others_at_most + CLOCK_ERROR / seconds
        samples[engine.name] = Sample(seconds, rates, others, is_disturbed)
    return Round(samples)
