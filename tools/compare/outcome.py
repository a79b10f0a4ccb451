"""The results of a case: every sample, and figures derived from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from compare.ceiling import LeastWork, Rates
from imp_service.core.bench.report import Spread

IMP = "imp"  # also the first word of a variant: imp beside itself, with the settings that follow
SPEED, SECONDS = "tokens_per_s", "seconds"


class Case(Protocol):
    """A dataclass with the sizes of a case."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def label(self) -> str:
        """The name of its rows in the table."""


@dataclass(frozen=True)
class Run:
    """One run of one engine: its seconds, the CPUs that other processes used, and figures besides the speed."""

    seconds: float
    others: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One engine in one round, and the rates probed right before its run."""

    run: Run
    rates: Rates
    is_disturbed: bool = False

    def figures(self, work: LeastWork) -> dict[str, float]:
        """Returns the speed, the time and the figures of the run."""
        return {SPEED: work.tokens / self.run.seconds, SECONDS: self.run.seconds, **self.run.figures}

    def as_json(self, work: LeastWork) -> dict[str, object]:
        """Returns all numbers of the sample."""
        facts = {"rates": self.rates, "others": self.run.others, "is_disturbed": self.is_disturbed}
        return {**self.figures(work), **facts, "ceiling_tokens_per_s": work.tokens_per_s(self.rates)}


@dataclass(frozen=True)
class Round:
    """A sample of every engine."""

    samples: dict[str, Sample]

    @property
    def is_disturbed(self) -> bool:
        """Whether any sample is disturbed: ratios are taken within a round."""
        return any(sample.is_disturbed for sample in self.samples.values())

    @property
    def rates(self) -> Rates:
        """Returns the highest probed rate of each kind: a disturbance only lowers a rate."""
        probes = [sample.rates for sample in self.samples.values()]
        return {kind: max(rates[kind] for rates in probes) for kind in probes[0]}

    @property
    def others(self) -> float:
        """Returns the value of the worst sample."""
        return max(sample.run.others for sample in self.samples.values())


@dataclass(frozen=True)
class Outcome:
    """The rounds of a case over all engines that ran it."""

    case: Case
    work: LeastWork
    rounds: list[Round]
    n_disturbed: int = 0  # rounds that are left out
    refusals: dict[str, str] = field(default_factory=dict)

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
        peers = [name for name in self.engines if name.split()[0] != IMP]
        return max(peers, key=lambda name: self.spread(name).median, default=None)

    def spread(self, engine: str, figure: str = SPEED) -> Spread:
        """Returns a figure over the rounds."""
        return Spread.of(round_.samples[engine].figures(self.work)[figure] for round_ in self.rounds)

    def ratio(self, peer: str, figure: str = SPEED) -> Spread:
        """Returns the ratio of imp's figure to the peer's in each round."""
        pairs = zip(self.spread(IMP, figure).samples, self.spread(peer, figure).samples, strict=True)
        return Spread.of(ours / theirs for ours, theirs in pairs)

    def fraction(self, engine: str) -> Spread:
        """Returns the least time of the case at the rates of the same round, divided by the measured time."""
        return Spread.of(self.work.seconds(round_.rates) / round_.samples[engine].run.seconds for round_ in self.rounds)

    def as_json(self) -> dict[str, object]:
        """Returns all numbers, with the samples of the rounds."""
        figures = {name: sample.figures(self.work).keys() for name, sample in self.rounds[0].samples.items()}
        engines = {
            name: {
                **{figure: self.spread(name, figure).as_json() for figure in figures[name]},
                "imp_ratio": {
                    figure: self.ratio(name, figure).as_json() for figure in figures[IMP] if figure in figures[name]
                },
                "ceiling_fraction": self.fraction(name).as_json(),
                "samples": [round_.samples[name].as_json(self.work) for round_ in self.rounds],
            }
            for name in self.engines
        }
        facts = {"disturbed_rounds": self.n_disturbed, "disturbed": self.is_disturbed, "refusals": self.refusals}
        return {
            **dataclasses.asdict(self.case),
            "work": self.work.as_json(),
            **facts,
            "best_peer": self.best_peer,
            "engines": engines,
        }
