"""The results of a bench: the times of each case, and the limits of the machine that were measured with it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from imp_service.core.bench.cases import Case
from imp_service.core.bench.work import PeakKind, Work


@dataclass(frozen=True, slots=True)
class Spread:
    """All measurements of one quantity, in order."""

    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Iterable[float]) -> Spread:
        """The spread of at least one measurement."""
        return cls(tuple(samples))

    @property
    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        return statistics.median(self.samples)

    @property
    def least(self) -> float:
        """The smallest."""
        return min(self.samples)

    @property
    def most(self) -> float:
        """The largest."""
        return max(self.samples)

    def as_json(self) -> dict[str, object]:
        """The summary and the measurements."""
        return {"median": self.median, "min": self.least, "max": self.most, "samples": list(self.samples)}


SCHEMA = "imp.bench.v1"


@dataclass(frozen=True, slots=True)
class Repetition:
    """The seconds of one repetition, and the machine's limits that were measured right before it, or after it."""

    seconds: float
    read_bytes_per_s: float
    peak_ops_per_s: float


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case with its repetitions. Fractions are of the limits measured with the same repetition."""

    case: Case
    work: Work
    peak: PeakKind
    repetitions: tuple[Repetition, ...]

    @property
    def seconds(self) -> Spread:
        """Seconds of the case."""
        return Spread.of(rep.seconds for rep in self.repetitions)

    @property
    def tokens_per_s(self) -> Spread:
        """Tokens per second of all sequences."""
        return Spread.of(self.work.tokens / rep.seconds for rep in self.repetitions)

    @property
    def read_bytes_per_s(self) -> Spread:
        """The measured memory bandwidth."""
        return Spread.of(rep.read_bytes_per_s for rep in self.repetitions)

    @property
    def peak_ops_per_s(self) -> Spread:
        """The measured peak of arithmetic."""
        return Spread.of(rep.peak_ops_per_s for rep in self.repetitions)

    @property
    def bandwidth_fraction(self) -> Spread:
        """The share of the memory bandwidth that the case reaches."""
        return Spread.of(self.work.bytes / rep.seconds / rep.read_bytes_per_s for rep in self.repetitions)

    @property
    def arithmetic_fraction(self) -> Spread:
        """The share of the peak of arithmetic that the case reaches."""
        return Spread.of(self.work.ops / rep.seconds / rep.peak_ops_per_s for rep in self.repetitions)

    def as_json(self) -> dict[str, object]:
        """Every number of the case."""
        case, work = self.case, self.work
        return {
            "kind": case.kind,
            "tokens": case.tokens,
            "batch": case.batch,
            "depth": case.depth,
            "threads": case.threads,
            "timed_tokens": work.tokens,
            "bytes_per_token": work.bytes / work.tokens,
            "ops_per_token": work.ops / work.tokens,
            "seconds": self.seconds.as_json(),
            "tokens_per_s": self.tokens_per_s.as_json(),
            "read_bytes_per_s": self.read_bytes_per_s.as_json(),
            "peak": self.peak,
            "peak_ops_per_s": self.peak_ops_per_s.as_json(),
            "bandwidth_fraction": self.bandwidth_fraction.as_json(),
            "arithmetic_fraction": self.arithmetic_fraction.as_json(),
        }


@dataclass(frozen=True, slots=True)
class OverheadResult:
    """Seconds of a decode step outside its forward pass: in the sampler, and in the engine (scheduling, events)."""

    threads: int
    batch: int
    sampling: Spread
    engine: Spread

    def as_json(self) -> dict[str, object]:
        """Every number of the result."""
        return {
            "threads": self.threads,
            "batch": self.batch,
            "sampling_seconds_per_step": self.sampling.as_json(),
            "engine_seconds_per_step": self.engine.as_json(),
        }


@dataclass(frozen=True, slots=True)
class RowsResult:
    """Seconds of a step that evaluates so many rows of one sequence, each with its logits."""

    threads: int
    rows: int
    depth: int
    seconds: Spread
    cost: float  # in steps of one row

    @property
    def break_even(self) -> float | None:
        """The share of right guesses from which a step with a pending token and guesses is faster; None: never."""
        return None if self.rows == 1 else break_even(self.cost, self.rows - 1)

    def as_json(self) -> dict[str, object]:
        """Every number of the result."""
        return {
            "threads": self.threads,
            "rows": self.rows,
            "depth": self.depth,
            "seconds": self.seconds.as_json(),
            "cost": self.cost,
            "break_even": self.break_even,
        }


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """All samples of one kind in groups of `streams`, decoded without and with guesses in turn.

    Seconds are those of an answer, averaged over a group.
    """

    kind: str
    threads: int
    streams: int
    tokens: int
    plain: Spread
    drafting: Spread
    speed_up: Spread
    drafted: int
    accepted: int

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step gives a sequence, on average."""
        return self.tokens / max(self.tokens - self.accepted, 1)

    def as_json(self) -> dict[str, object]:
        """Every number of the result."""
        return {
            "kind": self.kind,
            "threads": self.threads,
            "streams": self.streams,
            "tokens": self.tokens,
            "seconds_without": self.plain.as_json(),
            "seconds_with": self.drafting.as_json(),
            "speed_up": self.speed_up.as_json(),
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tokens_per_step": self.tokens_per_step,
        }


@dataclass(frozen=True, slots=True)
class SparseResult:
    """A prompt evaluated as a whole and in part, in turn, and both answers to it. Seconds to the first token."""

    threads: int
    prompt: int  # tokens
    evaluated: int  # of them, by the model
    reason: str  # why all were evaluated; empty if a part was
    whole: Spread
    part: Spread
    speed_up: Spread
    outputs: int  # tokens of the answer
    equal: int  # of them, where the most probable token is the same
    divergence: float  # of the distributions of the next token, in nats, on average

    def as_json(self) -> dict[str, object]:
        """Every number of the result."""
        return {
            "threads": self.threads,
            "prompt_tokens": self.prompt,
            "evaluated_tokens": self.evaluated,
            "fallback_reason": self.reason,
            "seconds_whole": self.whole.as_json(),
            "seconds_part": self.part.as_json(),
            "speed_up": self.speed_up.as_json(),
            "output_tokens": self.outputs,
            "equal_tokens": self.equal,
            "divergence": self.divergence,
        }


def break_even(cost: float, n_guesses: int) -> float | None:
    """The share of right guesses at which a step of this cost gives as many tokens in a time as single steps."""
    if cost >= n_guesses + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        if sum(share**i for i in range(n_guesses + 1)) < cost:
            low = share
        else:
            high = share
    return high


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model that was measured."""

    name: str
    architecture: str
    device: str
    weights_bytes: dict[str, int]  # in memory, by type
    kv_bytes_per_token: float
    remarks: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Every fact."""
        return {
            "model": self.name,
            "architecture": self.architecture,
            "device": self.device,
            "weights_bytes": self.weights_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All results of a bench."""

    facts: ModelFacts
    cases: tuple[CaseResult, ...]
    overheads: tuple[OverheadResult, ...]
    rows: tuple[RowsResult, ...] = ()
    replays: tuple[ReplayResult, ...] = ()
    sparse: tuple[SparseResult, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The report as `imp bench --json` prints it. An incompatible change must change `schema`."""
        return {
            "schema": SCHEMA,
            **self.facts.as_json(),
            "cases": [case.as_json() for case in self.cases],
            "overhead": [overhead.as_json() for overhead in self.overheads],
            "speculation": {
                "rows": [rows.as_json() for rows in self.rows],
                "replay": [replay.as_json() for replay in self.replays],
            },
            "sparse_prefill": [sparse.as_json() for sparse in self.sparse],
        }
