"""OpenVINO GenAI, stepping its continuous batching over the same GGUF file, with its own defaults of precision.

It compresses the cache to eight bits and quantizes activations by itself; the weights are the file's.
"""

from __future__ import annotations

import itertools
import time

import numpy as np

from compare.peers.engines.protocol import Task
from compare.refused import RefusedError, not_installed
from imp_service.core.bench.cases import Case

try:
    import openvino
    import openvino_genai
except ImportError as missing:
    raise not_installed(missing) from None

# A prompt is read in one step up to this length.
STEP_TOKENS = 8192
# Of the cache, beside what the cases hold: a run's sequences stay until room is needed, for their common beginnings.
CACHE_GIB, TOKENS_PER_GIB = 1, 8192


class OpenVinoEngine:
    """Beginnings that it has seen are not computed again, so that a depth is filled once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._numbers = itertools.count()
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = STEP_TOKENS
        scheduler.enable_prefix_caching = True
        scheduler.cache_size = CACHE_GIB + task.kv_tokens // TOKENS_PER_GIB
        properties = {"INFERENCE_NUM_THREADS": task.threads, "ENABLE_CPU_PINNING": True}
        try:
            self._pipeline = openvino_genai.ContinuousBatchingPipeline(str(task.path), scheduler, "CPU", properties)
        except RuntimeError as error:
            raise RefusedError(str(error).strip().splitlines()[-1]) from None

    def prepare(self, case: Case) -> None:
        self._case = case
        self._beginnings = [self._task.tokens(case.depth) for _ in range(case.batch)]
        if case.depth:
            self._finish(self._add(self._beginnings, 1))

    def run(self) -> float:
        case = self._case
        if case.kind == "prefill":
            return self._finish(self._add([self._task.tokens(case.tokens)], 1))
        handles = self._add([[*tokens, *self._task.tokens(1)] for tokens in self._beginnings], case.tokens)
        while not all(handle.can_read() for handle in handles):
            self._pipeline.step()
        return self._finish(handles)

    def release(self) -> None:
        self._beginnings = []

    def _add(self, prompts: list[list[int]], n_tokens: int) -> list[openvino_genai.GenerationHandle]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = n_tokens
        config.ignore_eos = True
        inputs = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        return [self._pipeline.add_request(next(self._numbers), tensor, config) for tensor in inputs]

    def _finish(self, handles: list[openvino_genai.GenerationHandle]) -> float:
        """Steps until the requests have ended; one whose handle is gone would end at once."""
        started = time.perf_counter()
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        if not all(handle.can_read() for handle in handles):
            raise RefusedError("a request ended without an output")
        return time.perf_counter() - started
