"""The summary of the runs: for each level, time to the first token, time between tokens, and throughput."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from .measure import LevelRun
from .measured_server import ServerFacts, titled
from .plan import LadderPlan

# The version of the JSON: increases when a field changes its meaning.
REPORT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in seconds, each of them a measured time, of `n` times. NaN if there are none."""

    p50: float
    p90: float
    p99: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        ordered = sorted(values)

        def at(share: float) -> float:
            """The nearest-rank percentile."""
            return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan

        return cls(at(0.5), at(0.9), at(0.99), len(ordered))


@dataclass(frozen=True, slots=True)
class LevelReport:
    """All repetitions of one level. Times are those of requests that succeeded."""

    level: int
    tokens_per_s: tuple[float, ...]  # in each repetition
    first_token: Percentiles
    inter_token: Percentiles
    tokens_per_message: float
    requests: int
    failures: dict[str, int]  # reason -> requests that ended with it, most first
    resumed: int = 0  # how often a request broke and went on

    @property
    def median_tokens_per_s(self) -> float:
        return Percentiles.of(self.tokens_per_s).p50


@dataclass(frozen=True, slots=True)
class Span:
    """The least and the most."""

    least: int
    most: int

    @classmethod
    def of(cls, values: Sequence[int], planned: int) -> "Span":
        """`planned` if there are no values."""
        return cls(min(values, default=planned), max(values, default=planned))

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} – {self.most}"


@dataclass(frozen=True, slots=True)
class LadderReport:
    """All measurements, and what was measured."""

    address: str
    measured_at: float  # seconds since 1970
    model: str
    weights: str
    server: str
    device: str
    plan: LadderPlan
    # Tokens in the requests that ended well, as the server counts them.
    prompts: Span
    answers: Span
    are_counted: bool  # else each message with text counts as one token of the answer
    levels: tuple[LevelReport, ...]

    @property
    def title(self) -> str:
        """The model, and its weights where the server describes them."""
        return titled(self.model, self.weights)

    @property
    def lengths(self) -> str:
        """The lengths of prompts and answers, and how they were counted if the server does not state them."""
        text = f"prompts of {self.prompts} tokens, answers of {self.answers}"
        return (
            text if self.are_counted else f"{text} messages (the server states no usage: a message counts as a token)"
        )

    def as_json(self) -> dict[str, object]:
        return {"version": REPORT_VERSION, **plain(asdict(self))}


def report_of(facts: ServerFacts, plan: LadderPlan, runs: Sequence[LevelRun]) -> LadderReport:
    good = [result for run in runs for result in run.results if not result.failure]
    return LadderReport(
        address=facts.address,
        measured_at=time.time(),
        model=facts.model,
        weights=facts.weights,
        server=facts.server,
        device=facts.device,
        plan=plan,
        prompts=Span.of([result.prompt_tokens for result in good if result.prompt_tokens], plan.prompt_tokens),
        answers=Span.of([result.n_tokens for result in good], plan.output_tokens),
        are_counted=all(result.is_counted for result in good),
        levels=tuple(_level(level, [run for run in runs if run.level == level]) for level in plan.levels),
    )


def _level(level: int, runs: Sequence[LevelRun]) -> LevelReport:
    good = [result for run in runs for result in run.results if not result.failure]
    n_messages = sum(len(result.arrivals) for result in good)
    return LevelReport(
        level=level,
        tokens_per_s=tuple(run.tokens_per_s for run in runs),
        first_token=Percentiles.of([result.first_token_seconds for result in good]),
        inter_token=Percentiles.of([seconds for result in good for seconds in result.inter_token_seconds()]),
        tokens_per_message=sum(result.n_tokens for result in good) / n_messages if n_messages else math.nan,
        requests=sum(len(run.results) for run in runs),
        failures=dict(sum((run.failures for run in runs), Counter()).most_common()),
        resumed=sum(run.n_resumed for run in runs),
    )


def plain(value: object) -> dict[str, object]:
    """JSON has no NaN: what was not measured is null."""

    def converted(inner: object) -> object:
        if isinstance(inner, dict):
            return {key: converted(item) for key, item in inner.items()}
        if isinstance(inner, list | tuple):
            return [converted(item) for item in inner]
        return None if isinstance(inner, float) and math.isnan(inner) else inner

    made = converted(value)
    assert isinstance(made, dict)  # narrows
    return made
