"""A row of the report, and the comparison of two transports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imp_service.core.bench.report import Spread

SERVER_CPU, CLIENT_CPU = 0, 1


@dataclass(frozen=True)
class Figure:
    """A row of the report. `target`: its goal in words."""

    name: str
    unit: str
    spread: Spread
    target: str = ""

    def as_json(self) -> dict[str, object]:
        """Returns the row as JSON values."""
        return {"name": self.name, "unit": self.unit, "target": self.target, **self.spread.as_json()}


def both(name: str, unit: str, grpc: Sequence[float], http: Sequence[float], target: str = "") -> Iterator[Figure]:
    """Returns a row for each transport, and one for the ratio of HTTP to gRPC, measured in turns."""
    yield Figure(f"{name}, gRPC", unit, Spread.of(grpc))
    yield Figure(f"{name}, HTTP", unit, Spread.of(http))
    ratios = [one / other if other else float("nan") for one, other in zip(http, grpc, strict=True)]
    yield Figure(f"{name}, HTTP in gRPC", "x", Spread.of(ratios), target)
