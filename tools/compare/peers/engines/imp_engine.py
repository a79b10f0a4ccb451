"""imp, through its engine."""

from __future__ import annotations

from contextlib import ExitStack

# Imported on first use otherwise; a load is measured without imports, for all engines.
import imp_service.generation.runtime
import imp_service.generation.text_side  # noqa: F401
from compare.caches import kv_bytes
from compare.peers.engines.protocol import Task
from compare.refused import RefusedError
from imp_service.config import ConfigError, read_settings
from imp_service.core.bench.cases import Case
from imp_service.core.bench.engine_runs import DecodeBatch, EngineRuns
from imp_service.core.errors import Error
from imp_service.generation import load_model


class ImpEngine:
    """With its default settings, but for the threads, the size of the cache and the settings of a variant."""

    def __init__(self, task: Task) -> None:
        settings = {
            "model.path": task.path,
            "device.threads": task.threads,
            "kv.bytes": kv_bytes(task.path, task.kv_tokens),
        }
        lines = [*(f"{key}={value}" for key, value in settings.items()), *task.settings]
        try:
            # With its tokenizer, as peers load theirs.
            self._model = load_model(read_settings(None, lines))
        except (Error, ConfigError) as error:
            raise RefusedError(str(error)) from None
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
        case = self._case
        return self._batch.decode(case.tokens) if case.kind == "decode" else self._runs.prefill(case.tokens)

    def release(self) -> None:
        self._held.close()

    def planned_bytes(self) -> int:
        """Cache, scratch and rows of logits."""
        items = self._model.core.memory["items"]
        return sum(items[name] for name in ("kv", "scratch", "logits"))
