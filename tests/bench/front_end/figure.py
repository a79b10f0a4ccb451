"""A row of the report, and how two transports are held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imp_service.core.bench.report import Spread

SERVER_CPU, CLIENT_CPU = 0, 1


@dataclass(frozen=True)
class Figure:
    """One row of the report; `target` in words where there is one."""

    name: str
    unit: str
    spread: Spread
    target: str = ""


def both(name: str, unit: str, grpc: Sequence[float], http: Sequence[float], target: str = "") -> Iterator[Figure]:
    """A row for each transport, and HTTP's figure in gRPC's, measured in turns."""
    yield Figure(f"{name}, gRPC", unit, Spread.of(grpc))
    yield Figure(f"{name}, HTTP", unit, Spread.of(http))
    ratios = [one / other if other else float("nan") for one, other in zip(http, grpc, strict=True)]
    yield Figure(f"{name}, HTTP in gRPC", "x", Spread.of(ratios), target)
