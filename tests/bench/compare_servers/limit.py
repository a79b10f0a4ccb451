"""The least time that a load can take on this machine: what its tokens read and compute, at the rates probed beside it.

Every prompt by itself is read at the arithmetic's peak, or as fast as weights come from memory: whichever is slower.
All clients then generate together: each step reads the weights once and every client's cache, and computes a row for
each. Nothing else is counted: no waiting for others, no step with fewer clients than there are, no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.compare_servers.load import Load
from imp_service import _core
from imp_service.config import load as load_config
from imp_service.core.bench.work import ModelWork, Work, model_work
from imp_service.core.load import load as load_model

SMALL_CACHE = "16MiB"
PROBE_SECONDS = 0.1


@dataclass(frozen=True)
class Limit:
    """Of a model on so many threads; the rates are to be probed while the servers sleep."""

    work: ModelWork
    vocab_size: int
    cpus: list[int]  # one for each thread
    chunk: int

    @classmethod
    def of(cls, path: Path, cpus: list[int]) -> Limit:
        """Loads the model for a moment, since its layouts in memory are what a step reads."""
        settings = {"model.path": path, "device.threads": len(cpus), "kv.bytes": SMALL_CACHE}
        loaded = load_model(load_config(None, [f"{key}={value}" for key, value in settings.items()]))
        scheduler = loaded.config.settings.scheduler
        chunk = min(scheduler.prefill_chunk, scheduler.step_tokens)
        found = cls(model_work(loaded.model), loaded.model.vocab_size, cpus, chunk)
        loaded.client.close()
        return found

    def probe(self) -> dict[str, float]:
        """Bytes and operations a second, right now, on CPUs that this thread may use."""
        n_threads, cpus = len(self.cpus), self.cpus
        bytes_per_s = _core.probe_read_bandwidth(n_threads, cpus=cpus, seconds=PROBE_SECONDS)
        return {
            "bytes": bytes_per_s,
            self.work.peak: _core.probe_peak(self.work.peak, n_threads, cpus=cpus, seconds=PROBE_SECONDS),
        }

    def tokens_per_s(self, load: Load, rates: dict[str, float]) -> float:
        """Generated ones."""

        def seconds(work: Work) -> float:
            return max(work.bytes / rates["bytes"], work.ops / rates[self.work.peak])

        prompts = load.clients * seconds(self.work.prefill(load.prompt_tokens, self.chunk))
        steps = seconds(self.work.decode(load.clients, load.prompt_tokens, load.output_tokens))
        return load.clients * load.output_tokens / (prompts + steps)
