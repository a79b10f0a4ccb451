"""The least time that a load can take on this machine, from the bytes and operations of its tokens and probed rates.

Each prompt runs alone, bound by arithmetic or by memory bandwidth, whichever takes longer. Then all clients decode
together: each step reads the weights once, reads the KV cache of every client, and computes one row for each. The limit
leaves out queueing, steps with fewer clients, and the server itself.
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
    """The limit of a model on a set of CPUs. Probe the rates while the servers are stopped."""

    work: ModelWork
    vocab_size: int
    cpus: list[int]  # one for each thread
    chunk: int

    @classmethod
    def of(cls, path: Path, cpus: list[int]) -> Limit:
        """Loads the model for a moment: a step reads the layout in memory, not that of the file."""
        settings = {"model.path": path, "device.threads": len(cpus), "kv.bytes": SMALL_CACHE}
        loaded = load_model(load_config(None, [f"{key}={value}" for key, value in settings.items()]))
        scheduler = loaded.config.settings.scheduler
        chunk = min(scheduler.prefill_chunk, scheduler.step_tokens)
        found = cls(model_work(loaded.model), loaded.model.vocab_size, cpus, chunk)
        loaded.client.close()
        return found

    def probe(self) -> dict[str, float]:
        """Measures bytes and operations per second now, on the CPUs of this thread."""
        n_threads, cpus = len(self.cpus), self.cpus
        bytes_per_s = _core.probe_read_bandwidth(n_threads, cpus=cpus, seconds=PROBE_SECONDS)
        return {
            "bytes": bytes_per_s,
            self.work.peak: _core.probe_peak(self.work.peak, n_threads, cpus=cpus, seconds=PROBE_SECONDS),
        }

    def tokens_per_s(self, load: Load, rates: dict[str, float]) -> float:
        """Returns generated tokens per second."""

        def seconds(work: Work) -> float:
            return max(work.bytes / rates["bytes"], work.ops / rates[self.work.peak])

        prompts = load.clients * seconds(self.work.prefill(load.prompt_tokens, self.chunk))
        steps = seconds(self.work.decode(load.clients, load.prompt_tokens, load.output_tokens))
        return load.clients * load.output_tokens / (prompts + steps)
