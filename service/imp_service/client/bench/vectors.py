"""Vectors from a server: calls of one text and of many, from one stream or from several."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ..failure import CallFailure
from .level_table import counts_text, duration_text, rate_text
from .measured_server import ServerFacts
from .plan import PlanRefused
from .report import REPORT_VERSION, Percentiles, Span, plain
from .vector_server import VectorServer

HEADINGS = (
    *("vectors", "streams", "texts/s", "min – max", "tokens/s"),
    *("a call: median", "90 %", "99 %", "calls", "failed"),
)
WARM_UP = -1  # instead of a repetition's number


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """Calls with so many texts each. Each of some concurrent streams sends `requests` calls, one after the other."""

    levels: tuple[int, ...] = (1,)
    texts: tuple[int, ...] = (1, 64)
    text_tokens: int = 32
    requests: int = 8
    reps: int = 3

    def check(self, most_tokens: int | None) -> None:
        """Raises PlanRefused if the server's model takes no text of this length."""
        if most_tokens is not None and self.text_tokens > most_tokens:
            raise PlanRefused(f"texts of {self.text_tokens} tokens, expected at most {most_tokens}")


@dataclass(frozen=True, slots=True)
class VectorLevel:
    """All repetitions of calls with so many texts from so many streams. Times are those of calls that succeeded."""

    texts: int
    level: int
    tokens: Span  # of a text, as the server counts them
    texts_per_s: tuple[float, ...]  # in each repetition
    tokens_per_s: tuple[float, ...]
    call: Percentiles
    requests: int
    failures: dict[str, int]

    @property
    def row(self) -> tuple[str, ...]:
        """The cells below HEADINGS."""
        return (
            f"{self.texts} text{'s' if self.texts != 1 else ''} of {self.tokens} tokens",
            str(self.level),
            rate_text(Percentiles.of(self.texts_per_s).p50),
            f"{rate_text(min(self.texts_per_s))} – {rate_text(max(self.texts_per_s))}",
            rate_text(Percentiles.of(self.tokens_per_s).p50),
            *(duration_text(seconds) for seconds in (self.call.p50, self.call.p90, self.call.p99)),
            str(self.requests),
            counts_text(self.failures) or "0",
        )


@dataclass(frozen=True, slots=True)
class VectorReport:
    """All measurements, and what was measured."""

    facts: ServerFacts
    plan: VectorPlan
    levels: tuple[VectorLevel, ...]

    def as_json(self) -> dict[str, object]:
        """The report as `imp bench --server --json` prints it."""
        return {"version": REPORT_VERSION, **plain(asdict(self))}


async def run_vectors(server: VectorServer, plan: VectorPlan, report: Callable[[str], None]) -> VectorReport:
    """Runs the plan. `report` is called with progress messages."""
    plan.check(server.most_tokens)
    await server.fit_texts(plan.text_tokens)
    levels = []
    for texts in plan.texts:
        for level in plan.levels:
            report(f"{texts} texts a call, {level} streams")
            await _run(server, plan, texts, level, WARM_UP)
            levels.append(
                _level(plan, texts, level, [await _run(server, plan, texts, level, i) for i in range(plan.reps)])
            )
    return VectorReport(server.facts, plan, tuple(levels))


@dataclass(frozen=True, slots=True)
class _Repetition:
    seconds: float
    # Of calls that succeeded: seconds, and the tokens of their texts.
    calls: Sequence[tuple[float, int]]
    failures: Sequence[str]


async def _run(server: VectorServer, plan: VectorPlan, texts: int, level: int, rep: int) -> _Repetition:
    calls: list[tuple[float, int]] = []
    failures: list[str] = []
    begins: list[float] = []

    async def stream(number: int) -> None:
        n_calls = 1 if rep == WARM_UP else plan.requests
        # Made before the clock starts.
        asks = [server.prepare(number, (rep, texts, level, number, i), texts) for i in range(n_calls)]
        await everyone_is_ready.wait()
        begins.append(time.perf_counter())
        for ask in asks:
            began = time.perf_counter()
            try:
                n_tokens = await ask()
            except CallFailure as error:
                failures.append(error.reason)
            else:
                calls.append((time.perf_counter() - began, n_tokens))

    everyone_is_ready = asyncio.Barrier(level)
    await asyncio.gather(*(stream(number) for number in range(level)))
    return _Repetition(time.perf_counter() - min(begins), calls, failures)


def _level(plan: VectorPlan, texts: int, level: int, runs: Sequence[_Repetition]) -> VectorLevel:
    calls = [call for run in runs for call in run.calls]
    return VectorLevel(
        texts=texts,
        level=level,
        tokens=Span.of([round(n_tokens / texts) for _, n_tokens in calls], plan.text_tokens),
        texts_per_s=tuple(texts * len(run.calls) / run.seconds for run in runs),
        tokens_per_s=tuple(sum(n_tokens for _, n_tokens in run.calls) / run.seconds for run in runs),
        call=Percentiles.of([seconds for seconds, _ in calls]),
        requests=sum(len(run.calls) + len(run.failures) for run in runs),
        failures=dict(Counter(reason for run in runs for reason in run.failures).most_common()),
    )
