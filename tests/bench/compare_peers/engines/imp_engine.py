"""imp, through its engine; it knows the work of a case, and probes the ceilings."""

from __future__ import annotations

from contextlib import ExitStack

# Imported on first use otherwise; a load is measured without imports, for all engines.
import imp_service.generation.runtime
import imp_service.generation.text_side  # noqa: F401
from bench.compare_peers.engines.protocol import RefusedError, Task
from imp_service import _core
from imp_service.config import ConfigError
from imp_service.config import load as load_config
from imp_service.core.bench.cases import Case
from imp_service.core.bench.engine_runs import DecodeBatch, EngineRuns
from imp_service.core.bench.work import model_work
from imp_service.core.errors import Error
from imp_service.core.load import cpus_of
from imp_service.generation import load_model

PROBE_SECONDS = 0.05


class ImpEngine:
    """With its default settings, but for the threads and the size of the cache."""

    def __init__(self, task: Task) -> None:
        self._threads = task.threads
        settings = {
            "model.path": task.path,
            "device.threads": task.threads,
            "kv.bytes": kv_bytes(task),
        }
        try:
            # With its tokenizer, as peers load theirs.
            self._model = load_model(load_config(None, [f"{key}={value}" for key, value in settings.items()]))
        except (Error, ConfigError) as error:
            raise RefusedError(str(error)) from None
        self._work = model_work(self._model.core)
        self._runs = EngineRuns(self._model.client, self._model.vocab_size)
        self._held = ExitStack()

    def prepare(self, case: Case) -> None:
        self._case = case
        if case.kind == "decode":
            try:
                self._batch = self._held.enter_context(DecodeBatch(self._runs, case.batch, case.depth))
            except Error as error:
                raise RefusedError(str(error)) from None

    def run(self) -> float:
        return self._batch.decode(self._case.tokens) if self._case.kind == "decode" else self._prefill()

    def release(self) -> None:
        self._held.close()

    def planned_bytes(self) -> int:
        """Cache, scratch and rows of logits."""
        items = self._model.core.memory["items"]
        return sum(items[name] for name in ("kv", "scratch", "logits"))

    def work(self) -> dict[str, float]:
        """The least that the prepared case reads and computes, in the layouts that imp has in memory."""
        case, work = self._case, self._work
        scheduler = self._model.config.settings.scheduler
        chunk = min(scheduler.prefill_chunk, scheduler.step_tokens)
        is_decode = case.kind == "decode"
        found = work.decode(case.batch, case.depth, case.tokens) if is_decode else work.prefill(case.tokens, chunk)
        return {"tokens": found.tokens, "bytes": found.bytes, work.peak: found.ops}

    def probe(self) -> dict[str, float]:
        """What the machine gives right now: bytes, and operations of the weights' kind, a second."""
        cpus, kind = cpus_of(self._model.config.settings), self._work.peak
        return {
            "bytes": _core.probe_read_bandwidth(self._threads, cpus=cpus, seconds=PROBE_SECONDS),
            kind: _core.probe_peak(kind, self._threads, cpus=cpus, seconds=PROBE_SECONDS),
        }

    def _prefill(self) -> float:
        return self._runs.prefill(self._case.tokens)


def kv_bytes(task: Task) -> int:
    """Returns the size of the cache for the task's tokens, with 2 bytes for each number (f16 and bf16)."""
    metadata = _core.open_model_file(task.path).metadata
    facts = {key.partition(".")[2]: value for key, value in metadata.items()}
    head_dim = facts["embedding_length"] // facts["attention.head_count"]
    widths = sum(facts.get(f"attention.{half}_length", head_dim) for half in ("key", "value"))
    return int(2 * task.kv_tokens * facts["block_count"] * facts["attention.head_count_kv"] * widths)
