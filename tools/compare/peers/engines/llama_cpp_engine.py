"""llama.cpp through its Python package.

As its own benches do, it draws nothing: each step reads any token, and its logits are left where they are.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from compare.peers.engines.protocol import Task
from compare.refused import not_installed
from imp_service.core.bench.cases import Case

try:
    from compare import llama_contexts
except ImportError as missing:
    raise not_installed(missing) from None

# Its defaults: tokens of a call, and of a pass through the model.
CALL_TOKENS, PASS_TOKENS = 2048, 512


class LlamaCppEngine:
    """A context for each case, with just the sequences and the room that the case has."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._held = ExitStack()
        self._model = llama_contexts.LlamaModel(task.path, task.threads)

    def note(self) -> str | None:
        """Returns what restricts this engine here."""
        return llama_contexts.note()

    def prepare(self, case: Case) -> None:
        self._case = case
        made = self._model.context(
            case.context + 1, n_sequences=case.batch, call_tokens=CALL_TOKENS, pass_tokens=PASS_TOKENS
        )
        self._context = self._held.enter_context(made)
        if case.kind == "decode":
            for sequence in range(case.batch):
                self._read(sequence, case.depth, wants_logits=False)

    def run(self) -> float:
        return self._decode() if self._case.kind == "decode" else self._prefill()

    def release(self) -> None:
        self._held.close()

    def _prefill(self) -> float:
        self._context.clear()
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
            self._context.forget(sequence, case.depth)
        return seconds

    def _step(self, position: int) -> None:
        tokens = self._task.tokens(self._case.batch)
        self._context.evaluate([(token, position, sequence, True) for sequence, token in enumerate(tokens)])

    def _read(self, sequence: int, n_tokens: int, *, wants_logits: bool) -> None:
        tokens = self._task.tokens(n_tokens)
        for at in range(0, n_tokens, CALL_TOKENS):
            end = min(at + CALL_TOKENS, n_tokens)
            self._context.evaluate(
                [(tokens[i], i, sequence, wants_logits and i == n_tokens - 1) for i in range(at, end)]
            )
