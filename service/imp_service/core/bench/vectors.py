"""Vectors of texts: how long a call with some texts of one length takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from imp_service import _core
from imp_service.core.bench.engine_runs import EngineRuns, Submit
from imp_service.core.bench.report import Spread, VectorsResult
from imp_service.core.errors import make_error

Report = Callable[[str], None]
# A repetition has so many texts, but no fewer calls than CALLS.
TEXTS, CALLS = 32, 4


class VectorBench:
    """Random texts, without the prefix cache."""

    def __init__(self, runs: EngineRuns, *, threads: int, most_tokens: int, reps: int, report: Report) -> None:
        """`most_tokens` is the length of the longest text."""
        self._runs = runs
        self._threads = threads
        self.most_tokens = most_tokens
        self._reps = reps
        self._report = report

    def require_room(self, tokens: int) -> None:
        """Raises if a text of this length is too long."""
        if tokens > self.most_tokens:
            words = f"texts of {tokens} tokens, this model takes at most {self.most_tokens}"
            raise make_error("CONTEXT_TOO_LONG", words)

    def measure(self, texts: int, tokens: int) -> VectorsResult:
        """All repetitions of calls with so many texts, after a warm-up."""
        label = f"vectors of {texts} texts, {tokens} tokens"
        self._report(label)
        self._call(texts, tokens)
        calls, rates = [], []
        for i in range(self._reps):
            self._report(f"{label}: {i + 1} of {self._reps}")
            seconds = [self._call(texts, tokens) for _ in range(max(CALLS, TEXTS // texts))]
            calls += seconds
            rates.append(texts * len(seconds) / sum(seconds))
        return VectorsResult(self._threads, texts, tokens, Spread.of(calls), Spread.of(rates))

    def _call(self, texts: int, tokens: int) -> float:
        """Seconds from the first text's submission to the last vector."""
        submits = [self._submit(tokens) for _ in range(texts)]
        began = time.perf_counter()
        self._runs.finish(submits)
        return time.perf_counter() - began

    def _submit(self, tokens: int) -> Submit:
        client = self._runs.client
        sequence, ids = client.next_sequence(), self._runs.tokens(tokens)
        limits = _core.RunLimits(max_outputs=0)
        # What classifiers make is no direction, so it has no length to divide by.
        returns = _core.RunReturns(vector=_core.VectorRequest(normalized=False))
        return lambda ticket: client.engine.generate(
            ticket, sequence, ids, bypass_prefix=True, limits=limits, returns=returns
        )
