"""Vectors from a server of imp.v1: calls of one text and of many, from one stream or from several."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ...pb.inference_pb2 import EmbedRequest
from ...pb.types_pb2 import TokenIds
from ..failure import CallFailure
from .imp_server import ImpServer, random_ids
from .level_table import counts_text, duration_text, rate_text
from .measured_server import ServerFacts
from .plan import PlanRefused
from .report import REPORT_VERSION, Percentiles, plain

HEADINGS = ("texts of a call", "streams", "texts/s", "min – max", "call: median", "90 %", "99 %", "calls", "failed")
WARM_UP = -1  # instead of a repetition's number


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """Calls with so many texts each. Each of some concurrent streams sends `requests` calls, one after the other."""

    levels: tuple[int, ...] = (1,)
    texts: tuple[int, ...] = (1, 64)
    text_tokens: int = 32
    requests: int = 8
    reps: int = 3

    def check(self, most_tokens: int) -> None:
        """Raises PlanRefused if the server's model takes no text of this length."""
        if self.text_tokens > most_tokens:
            raise PlanRefused(f"texts of {self.text_tokens} tokens, expected at most {most_tokens}")


@dataclass(frozen=True, slots=True)
class VectorLevel:
    """All repetitions of calls with so many texts from so many streams. Times are those of calls that succeeded."""

    texts: int
    level: int
    texts_per_s: tuple[float, ...]  # in each repetition
    call: Percentiles
    requests: int
    failures: dict[str, int]

    @property
    def row(self) -> tuple[str, ...]:
        """The cells below HEADINGS."""
        return (
            str(self.texts),
            str(self.level),
            rate_text(Percentiles.of(self.texts_per_s).p50),
            f"{rate_text(min(self.texts_per_s))} – {rate_text(max(self.texts_per_s))}",
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


async def run_vectors(server: ImpServer, plan: VectorPlan, report: Callable[[str], None]) -> VectorReport:
    """Runs the plan. `report` is called with progress messages."""
    plan.check(server.model.embeddings.max_tokens)
    levels = []
    for texts in plan.texts:
        for level in plan.levels:
            report(f"{texts} texts a call, {level} streams")
            await _run(server, plan, texts, level, WARM_UP)
            levels.append(_level(texts, level, [await _run(server, plan, texts, level, i) for i in range(plan.reps)]))
    return VectorReport(server.facts, plan, tuple(levels))


@dataclass(frozen=True, slots=True)
class _Repetition:
    seconds: float
    times: Sequence[float]  # of calls that succeeded
    failures: Sequence[str]


async def _run(server: ImpServer, plan: VectorPlan, texts: int, level: int, rep: int) -> _Repetition:
    times: list[float] = []
    failures: list[str] = []
    begins: list[float] = []

    async def stream(number: int) -> None:
        n_calls = 1 if rep == WARM_UP else plan.requests
        # Made before the clock starts.
        asks = [_request(server, plan, texts, (rep, level, number, i)) for i in range(n_calls)]
        await everyone_is_ready.wait()
        connection = server.connection_of(number)
        begins.append(time.perf_counter())
        for each in asks:
            began = time.perf_counter()
            try:
                await connection.unary(connection.inference.Embed, each)
            except CallFailure as error:
                failures.append(error.reason)
            else:
                times.append(time.perf_counter() - began)

    everyone_is_ready = asyncio.Barrier(level)
    await asyncio.gather(*(stream(number) for number in range(level)))
    return _Repetition(time.perf_counter() - min(begins), times, failures)


def _request(server: ImpServer, plan: VectorPlan, texts: int, identity: tuple[int, ...]) -> EmbedRequest:
    ids = [random_ids(server.model, (*identity, i), plan.text_tokens) for i in range(texts)]
    return EmbedRequest(token_ids=[TokenIds(ids=each) for each in ids])


def _level(texts: int, level: int, runs: Sequence[_Repetition]) -> VectorLevel:
    return VectorLevel(
        texts=texts,
        level=level,
        texts_per_s=tuple(texts * len(run.times) / run.seconds for run in runs),
        call=Percentiles.of([seconds for run in runs for seconds in run.times]),
        requests=sum(len(run.times) + len(run.failures) for run in runs),
        failures=dict(Counter(reason for run in runs for reason in run.failures).most_common()),
    )
