"""llama.cpp through the low-level interface of its Python package, with flash attention.

As its own benches do, it draws nothing: each step reads any token, and its logits are left where they are.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from bench.compare_peers.engines.protocol import RefusedError, Task, not_installed
from imp_service.core.bench.cases import Case

try:
    import llama_cpp

    from support.llama_cpp_peer import AMX_NOTE, has_amx, measured_model_params, start
except ImportError as missing:
    raise not_installed(missing) from None

FLASH_ATTENTION = 1
# Its defaults: tokens of a call, and of a pass through the model.
CALL_TOKENS, PASS_TOKENS = 2048, 512
CELLS = 256  # a sequence's room is rounded up to so many


class LlamaCppEngine:
    """A context for each case, with just the sequences and the room that the case has."""

    def __init__(self, task: Task) -> None:
        start()
        self._task = task
        self._held = ExitStack()
        self._model = llama_cpp.llama_model_load_from_file(bytes(task.path), measured_model_params())
        if not self._model:
            raise RefusedError("does not load the file")

    def note(self) -> str | None:
        """Returns what restricts this engine here."""
        return AMX_NOTE if has_amx() else None

    def prepare(self, case: Case) -> None:
        self._case = case
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max = case.batch
        params.n_ctx = case.batch * -(-(case.context + 1) // CELLS) * CELLS
        params.n_batch, params.n_ubatch = CALL_TOKENS, PASS_TOKENS
        params.n_threads = params.n_threads_batch = self._task.threads
        params.flash_attn_type = FLASH_ATTENTION
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise RefusedError("makes no context of the case's size")
        self._held.callback(llama_cpp.llama_free, self._context)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(CALL_TOKENS, 0, 1)
        self._held.callback(llama_cpp.llama_batch_free, self._batch)
        if case.kind == "decode":
            for sequence in range(case.batch):
                self._read(sequence, case.depth, wants_logits=False)

    def run(self) -> float:
        return self._decode() if self._case.kind == "decode" else self._prefill()

    def release(self) -> None:
        self._held.close()

    def _prefill(self) -> float:
        llama_cpp.llama_memory_clear(self._memory, True)
        started = time.perf_counter()
        self._read(0, self._case.tokens, wants_logits=True)
        return time.perf_counter() - started

    def _decode(self) -> float:
        case = self._case
        self._step(case.depth)
        started = time.perf_counter()
        for position in range(case.depth + 1, case.depth + case.tokens):
            self._step(position)
        seconds = time.perf_counter() - started
        for sequence in range(case.batch):
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, case.depth, -1)
        return seconds

    def _step(self, position: int) -> None:
        tokens = self._task.tokens(self._case.batch)
        self._evaluate([(token, position, sequence, True) for sequence, token in enumerate(tokens)])

    def _read(self, sequence: int, n_tokens: int, *, wants_logits: bool) -> None:
        tokens = self._task.tokens(n_tokens)
        for at in range(0, n_tokens, CALL_TOKENS):
            end = min(at + CALL_TOKENS, n_tokens)
            self._evaluate([(tokens[i], i, sequence, wants_logits and i == n_tokens - 1) for i in range(at, end)])

    def _evaluate(self, rows: list[tuple[int, int, int, bool]]) -> None:
        batch: Any = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants_logits) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants_logits
            batch.seq_id[i][0] = sequence
        result = llama_cpp.llama_decode(self._context, batch)
        if result != 0:
            raise RefusedError(f"llama_decode: {result}")
        llama_cpp.llama_synchronize(self._context)
