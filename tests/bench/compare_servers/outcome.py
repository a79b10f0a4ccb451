"""The results of a comparison: the samples of every round, and figures derived from them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.compare_peers.outcome import IMP
from bench.compare_servers.load import Load, Run
from imp_service.client.bench.report import Percentiles
from imp_service.core.bench.report import Spread

# Name -> unit. Less is better for all but the first.
FIGURES = {
    "tokens_per_s": "tokens/s",
    "first_token_p50": "s",
    "first_token_p99": "s",
    "inter_token_p50": "s",
    "inter_token_p99": "s",
}


@dataclass(frozen=True)
class Sample:
    """One server in one round. `others`: CPUs that other processes used."""

    run: Run
    server_cpu_seconds: float
    others: float
    limit: float  # tokens per second, for the rates probed before the round

    def figures(self) -> dict[str, float]:
        """Returns the figures by their names in FIGURES."""
        results = self.run.results.results
        first = Percentiles.of([result.first_token_seconds for result in results])
        between = Percentiles.of([seconds for result in results for seconds in result.inter_token_seconds()])
        values = (self.run.results.tokens_per_s, first.p50, first.p99, between.p50, between.p99)
        return dict(zip(FIGURES, values, strict=True))

    @property
    def client_share(self) -> float:
        """Returns the clients' share of the CPU time of clients and server."""
        return self.run.client_cpu_seconds / (self.run.client_cpu_seconds + self.server_cpu_seconds)

    def as_json(self) -> dict[str, object]:
        """Returns all numbers of the sample."""
        return {
            **self.figures(),
            "seconds": self.run.results.seconds,
            "client_cpu_seconds": self.run.client_cpu_seconds,
            "server_cpu_seconds": self.server_cpu_seconds,
            "others": self.others,
            "limit_tokens_per_s": self.limit,
        }


@dataclass(frozen=True)
class Outcome:
    """The rounds of one load on all servers."""

    case: Load
    rounds: list[dict[str, Sample]]
    starts: dict[str, float]  # seconds until ready

    @property
    def engines(self) -> list[str]:
        """Names the servers, imp first."""
        return sorted(self.rounds[0], key=lambda name: (name != IMP, name))

    def figure(self, server: str, name: str) -> Spread:
        """Returns the median and spread of a figure over the rounds."""
        return Spread.of(round_[server].figures()[name] for round_ in self.rounds)

    def tokens_per_s(self, server: str) -> Spread:
        """Returns generated tokens per second of all clients."""
        return self.figure(server, "tokens_per_s")

    def ratio(self, peer: str, name: str = "tokens_per_s") -> Spread:
        """Returns the ratio of imp's figure to the peer's in each round."""
        return Spread.of(round_[IMP].figures()[name] / round_[peer].figures()[name] for round_ in self.rounds)

    def fraction(self, server: str) -> Spread:
        """Returns the fraction of the limit, for the highest rates of the round: a disturbance only lowers a rate."""
        return Spread.of(
            round_[server].figures()["tokens_per_s"] / max(sample.limit for sample in round_.values())
            for round_ in self.rounds
        )

    def tail(self, server: str) -> Spread:
        """Returns the 99th percentile of the time between tokens, divided by the median."""
        return Spread.of(
            figures["inter_token_p99"] / figures["inter_token_p50"]
            for figures in (round_[server].figures() for round_ in self.rounds)
        )

    def client_share(self, server: str) -> float:
        """Returns the median share."""
        return statistics.median(round_[server].client_share for round_ in self.rounds)

    def others(self, server: str) -> float:
        """Returns the value of the worst round."""
        return max(round_[server].others for round_ in self.rounds)

    def as_json(self) -> dict[str, object]:
        """Returns all numbers, and the load."""
        servers = {
            name: {
                **{figure: self.figure(name, figure).as_json() for figure in FIGURES},
                "inter_token_p99_in_p50": self.tail(name).as_json(),
                "limit_fraction": self.fraction(name).as_json(),
                "imp_ratio": {figure: self.ratio(name, figure).as_json() for figure in FIGURES},
                "start_seconds": self.starts[name],
                "client_cpu_share": self.client_share(name),
                "rounds": [round_[name].as_json() for round_ in self.rounds],
            }
            for name in self.engines
        }
        case = self.case
        sizes = {
            "api": case.api,
            "clients": case.clients,
            "prompt_tokens": case.prompt_tokens,
            "output_tokens": case.output_tokens,
        }
        return {**sizes, "requests_of_each": case.requests, "servers": servers}
