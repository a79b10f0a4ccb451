"""The least time that a case can take on this machine: its bytes and operations, at rates that are probed now."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service import _core
from imp_service.config import read_settings
from imp_service.core.bench.work import ModelWork, Work, model_work
from imp_service.core.load import load_weights

SMALL_CACHE = "16MiB"
PROBE_SECONDS = 0.05

# Bytes, and operations of the kind of the model's weights, per second.
Rates = dict[str, float]


@dataclass(frozen=True)
class LeastWork:
    """The work of a case: phases one after the other, each bound by memory or by arithmetic of the kind `peak`."""

    tokens: float  # that count for the speed
    peak: str
    phases: Sequence[Work]
    probe: Callable[[], Rates]  # measures the rates now

    def seconds(self, rates: Rates) -> float:
        """Returns the least time at these rates."""
        return sum(max(phase.bytes / rates["bytes"], phase.ops / rates[self.peak]) for phase in self.phases)

    def tokens_per_s(self, rates: Rates) -> float:
        """Returns the ceiling of the speed at these rates."""
        return self.tokens / self.seconds(rates)

    def as_json(self) -> dict[str, float]:
        """Returns the sums over the phases."""
        n_bytes, n_ops = sum(phase.bytes for phase in self.phases), sum(phase.ops for phase in self.phases)
        return {"tokens": self.tokens, "bytes": n_bytes, self.peak: n_ops}


@dataclass(frozen=True)
class Ceiling:
    """What a model's work costs in the layouts that imp has in memory, and the rates of a set of CPUs."""

    model: ModelWork
    vocab_size: int
    cpus: list[int]  # one for each thread
    chunk: int  # tokens that a step reads of a prompt

    @classmethod
    def of(cls, path: Path, cpus: list[int]) -> Ceiling:
        """Loads the model for a moment."""
        settings = {"model.path": path, "device.threads": len(cpus), "kv.bytes": SMALL_CACHE}
        loaded = load_weights(read_settings(None, [f"{key}={value}" for key, value in settings.items()]))
        scheduler = loaded.config.settings.scheduler
        chunk = min(scheduler.prefill_chunk, scheduler.step_tokens)
        found = cls(model_work(loaded.model), loaded.model.vocab_size, cpus, chunk)
        loaded.client.close()
        return found

    def prefill(self, tokens: int) -> Work:
        """Returns the work of a prompt that is read alone."""
        return self.model.prefill(tokens, self.chunk)

    def work(self, tokens: float, phases: Sequence[Work]) -> LeastWork:
        """Returns the work of a case with these phases."""
        return LeastWork(tokens, self.model.peak, phases, self.probe)

    def probe(self) -> Rates:
        """Measures the rates now, on CPUs that may differ from this thread's. The engines must be at rest."""
        own, peak = os.sched_getaffinity(0), self.model.peak
        os.sched_setaffinity(0, self.cpus)
        try:
            return {
                "bytes": _core.probe_read_bandwidth(len(self.cpus), cpus=self.cpus, seconds=PROBE_SECONDS),
                peak: _core.probe_peak(peak, len(self.cpus), cpus=self.cpus, seconds=PROBE_SECONDS),
            }
        finally:
            os.sched_setaffinity(0, own)
