"""The results for one file, as rows for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from compare.outcome import IMP
from compare.quality.divergence import Divergences, Figure, Scale
from compare.table import Table

COLUMNS = (("mean", 9), ("95 of 100", 19), ("median", 9), ("99 %", 9), ("same best", 9))
TABLE = Table([("divergence from float32, in nats", -46), *COLUMNS])
# An entropy closer to that of the uniform distribution would show little of what quantization does to trained models.
FLAT = 0.6


@dataclass(frozen=True)
class Reading:
    """The result of an engine with one type of cache."""

    engine: str
    kv: str
    found: Divergences

    @property
    def label(self) -> str:
        """The name of the row, such as: llama.cpp, steps, f16 cache."""
        return f"{self.engine}, {self.kv} cache"


@dataclass(frozen=True)
class Comparison:
    """The results of all engines on one file."""

    path: Path
    vocab_log: float  # entropy of the uniform distribution
    scale: Scale
    readings: list[Reading]

    @property
    def baseline(self) -> Reading:
        """The bound for imp: the better of the peer's ways with its default cache."""
        peers = [reading for reading in self.readings if reading.engine != IMP and reading.kv == "f16"]
        return min(peers, key=lambda reading: float(reading.found.nats.mean()))

    def ratios(self) -> dict[str, Figure]:
        """The ratio of imp's mean to the baseline's mean, by type of cache."""
        base = self.baseline.found
        return {reading.kv: reading.found.ratio(base) for reading in self.readings if reading.engine == IMP}

    def as_json(self) -> dict[str, object]:
        """Returns every figure for JSON."""
        engines = [
            {
                "engine": reading.engine,
                "kv": reading.kv,
                **{name: asdict(figure) for name, figure in reading.found.figures.items()},
            }
            for reading in self.readings
        ]
        ratios = {kv: {**asdict(ratio), "goal": verdict(ratio)} for kv, ratio in self.ratios().items()}
        return {
            "file": self.path.name,
            "positions": len(self.baseline.found.nats),
            "reference_entropy": self.scale.entropy,
            "logits_factor": self.scale.factor,
            "baseline": self.baseline.label,
            "engines": engines,
            "imp_ratio": ratios,
        }


def lines(comparison: Comparison) -> list[str]:
    """Returns a row for each engine, then imp's ratios to the peer."""
    scale, name = comparison.scale, comparison.path.name
    told = f"{name}: {len(comparison.baseline.found.nats)} positions, entropy of the reference {scale.entropy:.2f}"
    found = [told + ("" if scale.factor == 1 else f" with logits times {scale.factor:.3g}")]
    if scale.entropy > FLAT * comparison.vocab_log:
        found.append(f"  nearly any token ({comparison.vocab_log:.2f}): --entropy 3 would say more")
    found += [row(reading) for reading in comparison.readings]
    for kv, ratio in comparison.ratios().items():
        found.append(
            f"  imp, {kv} cache: {ratio.value:.3f} × ({ratio.low:.3f} to {ratio.high:.3f}) of "
            f"{comparison.baseline.label}: goal of at most 1 {verdict(ratio)}"
        )
    return found


def row(reading: Reading) -> str:
    """Returns the row of one engine."""
    figures = reading.found.figures
    mean, median, p99, same_top = (figures[name] for name in ("mean", "median", "p99", "same_top"))
    nats = (f"{mean.value:.2e}", f"{mean.low:.2e} {mean.high:.2e}", f"{median.value:.2e}", f"{p99.value:.2e}")
    return TABLE.row(f"  {reading.label}", *nats, f"{100 * same_top.value:.2f} %")


def verdict(ratio: Figure) -> str:
    """Returns whether imp meets the bound. If 1 is within the interval, the positions cannot distinguish the two."""
    if ratio.high <= 1:
        return "met"
    return "missed" if ratio.low > 1 else "met within the spread"
