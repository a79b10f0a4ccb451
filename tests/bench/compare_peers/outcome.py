"""The results of a comparison: every sample, and figures derived from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from imp_service.core.bench.cases import Case
from imp_service.core.bench.report import Spread

IMP = "imp"


@dataclass(frozen=True)
class Sample:
    """One engine in one round: its seconds, the rates probed before it, and the CPUs that other processes used."""

    seconds: float
    rates: dict[str, float]
    others: float
    is_disturbed: bool


@dataclass(frozen=True)
class Round:
    """A sample of every engine."""

    samples: dict[str, Sample]

    @property
    def is_disturbed(self) -> bool:
        """Whether any sample is disturbed: ratios are taken within a round."""
        return any(sample.is_disturbed for sample in self.samples.values())

    @property
    def ceilings(self) -> dict[str, float]:
        """Returns the highest probed rate of each kind: a disturbance only lowers a rate."""
        probes = [sample.rates for sample in self.samples.values()]
        return {kind: max(rates[kind] for rates in probes) for kind in probes[0]}

    @property
    def others(self) -> float:
        """Returns the value of the worst sample."""
        return max(sample.others for sample in self.samples.values())


@dataclass(frozen=True)
class Outcome:
    """A case on all engines. `work`: its tokens, and the least bytes and operations that it needs."""

    case: Case
    work: dict[str, float]
    rounds: list[Round]
    n_disturbed: int  # rounds disturbed by other processes
    refusals: dict[str, str]

    @property
    def is_disturbed(self) -> bool:
        """Whether no round was quiet. The samples are then those of the least disturbed rounds."""
        return any(round_.is_disturbed for round_ in self.rounds)

    @property
    def engines(self) -> list[str]:
        """Names the engines that ran the case, imp first."""
        return sorted(self.rounds[0].samples, key=lambda name: (name != IMP, name))

    @property
    def best_peer(self) -> str | None:
        """Names the fastest peer that ran the case."""
        peers = [name for name in self.engines if name != IMP]
        return max(peers, key=lambda name: self.tokens_per_s(name).median, default=None)

    def tokens_per_s(self, engine: str) -> Spread:
        """Returns tokens per second over all sequences."""
        return Spread.of(self.work["tokens"] / sample.seconds for sample in self._samples(engine))

    def ratio(self, peer: str) -> Spread:
        """Returns the ratio of imp's speed to the peer's in each round."""
        pairs = zip(self._samples(peer), self._samples(IMP), strict=True)
        return Spread.of(theirs.seconds / ours.seconds for theirs, ours in pairs)

    def fraction(self, engine: str) -> Spread:
        """Returns the least time of the case at the ceiling probed in the same round, divided by the measured time."""
        return Spread.of(self._least_seconds(round_) / round_.samples[engine].seconds for round_ in self.rounds)

    def as_json(self) -> dict[str, object]:
        """Returns all numbers, with the samples of the rounds."""
        engines = {
            name: {
                "tokens_per_s": self.tokens_per_s(name).as_json(),
                "imp_ratio": self.ratio(name).as_json(),
                "ceiling_fraction": self.fraction(name).as_json(),
                "samples": [dataclasses.asdict(sample) for sample in self._samples(name)],
            }
            for name in self.engines
        }
        facts = {"disturbed_rounds": self.n_disturbed, "disturbed": self.is_disturbed, "refusals": self.refusals}
        facts["best_peer"] = self.best_peer
        return {**dataclasses.asdict(self.case), "work": self.work, **facts, "engines": engines}

    def _least_seconds(self, round_: Round) -> float:
        ceilings = round_.ceilings
        return max(amount / ceilings[kind] for kind, amount in self.work.items() if kind != "tokens")

    def _samples(self, engine: str) -> list[Sample]:
        return [round_.samples[engine] for round_ in self.rounds]


@dataclass(frozen=True)
class Start:
    """Repeated loads and prompts: seconds to the first token, and the peak memory of the process."""

    engine: str
    threads: int
    seconds: Spread
    peak_bytes: Spread
    file_bytes: int
    planned_bytes: int | None = None  # the file, and what the engine plans besides the weights
    note: str | None = None  # what restricts the engine on this machine

    def as_json(self) -> dict[str, object]:
        """Returns all numbers."""
        sizes = {} if self.planned_bytes is None else {"planned_bytes": self.planned_bytes}
        notes = {} if self.note is None else {"note": self.note}
        spreads = {"first_token_seconds": self.seconds.as_json(), "peak_bytes": self.peak_bytes.as_json()}
        return {
            "engine": self.engine,
            "threads": self.threads,
            "file_bytes": self.file_bytes,
            **sizes,
            **spreads,
            **notes,
        }
