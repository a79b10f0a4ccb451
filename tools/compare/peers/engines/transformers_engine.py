"""transformers on PyTorch in bfloat16: the file's weights, decoded."""

from __future__ import annotations

import time

from compare.peers.engines.protocol import Task
from compare.refused import RefusedError, not_installed
from imp_service.core.bench.cases import Case

try:
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache
except ImportError as missing:
    raise not_installed(missing) from None


class TransformersEngine:
    """One forward pass for each step; it draws nothing."""

    def __init__(self, task: Task) -> None:
        self._task = task
        torch.set_num_threads(task.threads)
        try:
            model = AutoModelForCausalLM.from_pretrained(
                task.path.parent, gguf_file=task.path.name, dtype=torch.bfloat16
            )
        except (ValueError, RuntimeError, ImportError, KeyError) as error:
            raise RefusedError(f"does not load the file: {error}") from None
        self._model = model.eval()

    def prepare(self, case: Case) -> None:
        self._case = case
        self._cache = DynamicCache(config=self._model.config)
        if case.depth:
            self._forward(case.depth)

    def run(self) -> float:
        case = self._case
        if case.kind == "prefill":
            self._cache = DynamicCache(config=self._model.config)
            return self._timed(1, case.tokens)
        self._forward(1)
        seconds = self._timed(case.tokens - 1, 1)
        self._cache.crop(-case.tokens)
        return seconds

    def release(self) -> None:
        del self._cache

    def _timed(self, n_steps: int, n_tokens: int) -> float:
        started = time.perf_counter()
        for _ in range(n_steps):
            self._forward(n_tokens)
        return time.perf_counter() - started

    def _forward(self, n_tokens: int) -> None:
        rows = torch.tensor([self._task.tokens(n_tokens) for _ in range(self._case.batch)])
        with torch.inference_mode():
            self._model(rows, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
