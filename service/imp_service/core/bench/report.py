"""The results of a bench: the times of each case, and the limits of the machine that were measured with it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

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
class Result:
    """Numbers that a report shows: the fields of a subclass, and its properties that DERIVED names."""

    DERIVED: ClassVar[tuple[str, ...]] = ()

    def as_json(self) -> dict[str, object]:
        """Every number of the result."""
        values = {name: getattr(self, name) for name in (*(field.name for field in fields(self)), *self.DERIVED)}
        return {name: value.as_json() if isinstance(value, Spread) else value for name, value in values.items()}


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
            **asdict(case),
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
class OverheadResult(Result):
    """Seconds of a decode step outside its forward pass: in the sampler, and in the engine (scheduling, events)."""

    threads: int
    batch: int
    sampling_seconds_per_step: Spread
    engine_seconds_per_step: Spread


@dataclass(frozen=True, slots=True)
class RowsResult(Result):
    """Seconds of a step that evaluates so many rows of one sequence, each with its logits."""

    DERIVED = ("break_even",)

    threads: int
    rows: int
    depth: int
    seconds: Spread
    cost: float  # in steps of one row

    @property
    def break_even(self) -> float | None:
        """The share of right guesses from which a step with a pending token and guesses is faster; None: never."""
        return None if self.rows == 1 else break_even(self.cost, self.rows - 1)


@dataclass(frozen=True, slots=True)
class ReplayResult(Result):
    """All samples of one kind in groups of `streams`, decoded without and with guesses in turn.

    Seconds are those of an answer, averaged over a group.
    """

    DERIVED = ("tokens_per_step",)

    kind: str
    threads: int
    streams: int
    tokens: int
    seconds_without: Spread
    seconds_with: Spread
    speed_up: Spread
    drafted: int
    accepted: int

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step gives a sequence, on average."""
        return self.tokens / max(self.tokens - self.accepted, 1)


@dataclass(frozen=True, slots=True)
class SparseResult(Result):
    """A prompt evaluated as a whole and in part, in turn, and both answers to it. Seconds to the first token."""

    threads: int
    prompt_tokens: int
    evaluated_tokens: int  # of the prompt, by the model
    fallback_reason: str  # why all were evaluated; empty if a part was
    seconds_whole: Spread
    seconds_part: Spread
    speed_up: Spread
    output_tokens: int
    equal_tokens: int  # of the answer, where the most probable token is the same
    divergence: float  # of the distributions of the next token, in nats, on average


@dataclass(frozen=True, slots=True)
class ImageResult(Result):
    """An image in a prompt, alone and while a stream runs. Times of the first token begin before it is decoded."""

    DERIVED = ("gap_ratio",)

    threads: int
    width: int
    height: int
    prompt_tokens: int  # of the image, what is written around it, and the text after it
    image_tokens: int
    decode_seconds: Spread
    encode_seconds: Spread
    first_token_seconds: Spread
    gap_seconds: Spread  # the longest between two tokens of the stream
    text_gap_seconds: Spread  # the same for a text of as many tokens

    @property
    def gap_ratio(self) -> float:
        """The longest gap, in longest gaps of a text."""
        return self.gap_seconds.median / self.text_gap_seconds.median


@dataclass(frozen=True, slots=True)
class VectorsResult(Result):
    """Calls that make the vectors of some texts."""

    threads: int
    texts: int  # of a call
    tokens: int  # of a text
    call_seconds: Spread
    texts_per_s: Spread  # of each repetition


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
class ModelFacts(Result):
    """The model that was measured."""

    model: str
    architecture: str
    device: str
    weights_bytes: dict[str, int]  # in memory, by type
    kv_bytes_per_token: float
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All results of a bench."""

    facts: ModelFacts
    cases: tuple[CaseResult, ...]
    overheads: tuple[OverheadResult, ...]
    rows: tuple[RowsResult, ...] = ()
    replays: tuple[ReplayResult, ...] = ()
    sparse: tuple[SparseResult, ...] = ()
    images: tuple[ImageResult, ...] = ()
    vectors: tuple[VectorsResult, ...] = ()

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
            "images": [image.as_json() for image in self.images],
            "vectors": [vectors.as_json() for vectors in self.vectors],
        }
