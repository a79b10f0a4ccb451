"""What a comparison of servers found: every round of a load, and what follows from them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.compare_peers.outcome import IMP
from bench.compare_servers.load import Load, Run
from imp_service.client.bench.report import Percentiles
from imp_service.core.bench.report import Spread

# Name -> unit; of all but the first, less is better.
FIGURES = {
    "tokens_per_s": "tokens/s",
    "first_token_p50": "s",
    "first_token_p99": "s",
    "inter_token_p50": "s",
    "inter_token_p99": "s",
}


@dataclass(frozen=True)
class Sample:
    """One server in one round. `others`: CPUs that neither it nor the clients had."""

    run: Run
    server_cpu_seconds: float
    others: float
    limit: float  # tokens a second, by the rates probed before it

    def figures(self) -> dict[str, float]:
        """By the names of FIGURES."""
        results = self.run.results.results
        first = Percentiles.of([result.first_token_seconds for result in results])
        between = Percentiles.of([seconds for result in results for seconds in result.inter_token_seconds()])
        values = (self.run.results.tokens_per_s, first.p50, first.p99, between.p50, between.p99)
        return dict(zip(FIGURES, values, strict=True))

    @property
    def client_share(self) -> float:
        """Of the processor time of clients and server, what the clients had."""
        return self.run.client_cpu_seconds / (self.run.client_cpu_seconds + self.server_cpu_seconds)

    def as_json(self) -> dict[str, object]:
        """Every number."""
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
    """A load on all servers, round by round."""

    case: Load
    rounds: list[dict[str, Sample]]
    starts: dict[str, float]  # seconds to being ready

    @property
    def engines(self) -> list[str]:
        """imp first."""
        return sorted(self.rounds[0], key=lambda name: (name != IMP, name))

    def figure(self, server: str, name: str) -> Spread:
        """Over the rounds."""
        return Spread.of(round_[server].figures()[name] for round_ in self.rounds)

    def tokens_per_s(self, server: str) -> Spread:
        """Generated, over all clients."""
        return self.figure(server, "tokens_per_s")

    def ratio(self, peer: str, name: str = "tokens_per_s") -> Spread:
        """imp's figure in the peer's, round by round."""
        return Spread.of(round_[IMP].figures()[name] / round_[peer].figures()[name] for round_ in self.rounds)

    def fraction(self, server: str) -> Spread:
        """Of the limit, by the highest rates probed in the round: what disturbs a probe makes it less."""
        return Spread.of(
            round_[server].figures()["tokens_per_s"] / max(sample.limit for sample in round_.values())
            for round_ in self.rounds
        )

    def tail(self, server: str) -> Spread:
        """How much longer than the usual wait for a token the longest of a hundred is."""
        return Spread.of(
            figures["inter_token_p99"] / figures["inter_token_p50"]
            for figures in (round_[server].figures() for round_ in self.rounds)
        )

    def client_share(self, server: str) -> float:
        """The median's."""
        return statistics.median(round_[server].client_share for round_ in self.rounds)

    def others(self, server: str) -> float:
        """In the worst round."""
        return max(round_[server].others for round_ in self.rounds)

    def as_json(self) -> dict[str, object]:
        """Every number, and what the goals are stated for."""
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
