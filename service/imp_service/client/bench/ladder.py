"""The ladder of a bench: levels with increasing numbers of concurrent streams, run several times."""

import asyncio
from collections.abc import Callable

from .measure import LevelRun, RequestResult
from .measured_server import MeasuredServer
from .plan import LadderPlan
from .report import LadderReport, report_of

WARM_UP = -1  # instead of a repetition's number


async def run_ladder(server: MeasuredServer, plan: LadderPlan, report: Callable[[str], None]) -> LadderReport:
    """Runs the plan. `report` is called with progress messages."""
    plan.check(server.facts)
    for level in plan.levels:
        report(f"warming up, {level} streams")
        n_tokens = min(plan.warm_up_tokens, plan.output_tokens)
        await _run(server, WARM_UP, level, n_requests=1, output_tokens=n_tokens)
    runs = []
    for rep, level in plan.order():
        report(f"repetition {rep + 1} of {plan.reps}, {level} streams")
        runs.append(await _run(server, rep, level, plan.requests, plan.output_tokens))
    return report_of(server.facts, plan, runs)


async def _run(server: MeasuredServer, rep: int, level: int, n_requests: int, output_tokens: int) -> LevelRun:
    """Runs `level` streams; each sends `n_requests` requests, one after the other."""

    async def stream(number: int) -> list[RequestResult]:
        # Prepared before the clock starts, since making a prompt of thousands of tokens takes time.
        asks = [server.prepare(number, (rep, level, number, i), output_tokens) for i in range(n_requests)]
        await everyone_is_ready.wait()
        return [await ask() for ask in asks]

    everyone_is_ready = asyncio.Barrier(level)
    results = await asyncio.gather(*(stream(number) for number in range(level)))
    return LevelRun(level, [result for of_stream in results for result in of_stream])
