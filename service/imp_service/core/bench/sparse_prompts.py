"""What sparse prefill gains and loses on given prompts: the time to the first token, and how the output differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from imp_service import _core
from imp_service.config.settings import SparsePrefillSettings
from imp_service.core.bench.engine_runs import NS, EngineRuns, Submit
from imp_service.core.bench.json_lines import Encode, json_lines, token_ids
from imp_service.core.bench.report import SparseResult, Spread
from imp_service.core.engine_client import Event
from imp_service.core.errors import field_invalid
from imp_service.tables import KEEP_ALL

Report = Callable[[str], None]
# Of the distribution of the second logits from that of the first ones.
Divergence = Callable[[Any, Any], float]

FIELD = "sparse_prefill"


def read_prompts(path: Path, encode: Encode | None, n_tokens: int) -> list[list[int]]:
    """The prompts of a file of JSON lines: {"prompt": …}, a text or a list of token ids. Texts need a tokenizer."""
    prompts = []
    for place, line in json_lines(path, FIELD):
        try:
            prompt = token_ids(line["prompt"], encode)
        except (ValueError, KeyError, TypeError) as error:
            raise field_invalid(FIELD, f"{place}: {error}; expected an object with prompt") from None
        if not prompt or max(prompt) >= n_tokens:
            raise field_invalid(FIELD, f"{place}: expected at least one token, and ids below {n_tokens}")
        prompts.append(prompt)
    return prompts


class SparseBench:
    """Evaluates each prompt as a whole and in part, in turn."""

    def __init__(
        self,
        runs: EngineRuns,
        threads: int,
        settings: SparsePrefillSettings,
        *,
        divergence: Divergence,
        reps: int,
        report: Report,
    ) -> None:
        """`settings`: the shares of a prompt to evaluate."""
        self._runs = runs
        self._threads = threads
        self._keep = max(1, round(settings.keep * KEEP_ALL))
        self._backbone = round(settings.backbone * KEEP_ALL)
        self._divergence = divergence
        self._reps = reps
        self._report = report

    def measure(self, prompts: Sequence[list[int]], n_tokens: int) -> list[SparseResult]:
        """The results of each prompt. Answers have `n_tokens`, of which both ways get the same ones."""
        return [self._measure(number, prompt, n_tokens) for number, prompt in enumerate(prompts, 1)]

    def _measure(self, number: int, prompt: list[int], n_tokens: int) -> SparseResult:
        self._report(f"prompt {number}: the answer")
        answer, whole = self._answer(prompt, "dense", n_tokens)
        _, part = self._answer(prompt, "sparse", n_tokens, answer)
        seconds: dict[str, list[float]] = {"dense": [], "sparse": []}
        started = None
        for rep in range(self._reps):
            self._report(f"prompt {number}: {rep + 1} of {self._reps}")
            for policy in ("dense", "sparse") if rep % 2 == 0 else ("sparse", "dense"):
                took, report = self._first_token(prompt, policy)
                seconds[policy].append(took)
                if policy == "sparse":
                    started = report
        assert started is not None
        n_left_out = started.n_scored - started.n_selected if started.is_sparse else 0
        speed_ups = [dense / sparse for dense, sparse in zip(seconds["dense"], seconds["sparse"], strict=True)]
        return SparseResult(
            self._threads,
            len(prompt),
            len(prompt) - n_left_out,
            started.reason if not started.is_sparse else "",
            Spread.of(seconds["dense"]),
            Spread.of(seconds["sparse"]),
            Spread.of(speed_ups),
            output_tokens=len(answer),
            equal_tokens=sum(int(a.argmax() == b.argmax()) for a, b in zip(whole, part, strict=True)),
            divergence=sum(map(self._divergence, whole, part)) / len(answer),
        )

    def _answer(
        self, prompt: list[int], policy: str, n_tokens: int, forced: Sequence[int] = ()
    ) -> tuple[list[int], list[Any]]:
        """The greedy answer, or the given one, and the logits of each of its tokens."""
        tokens: list[int] = []
        logits: list[Any] = []

        def take(event: Event) -> None:
            if isinstance(event, _core.TokenEvent):
                tokens.append(event.token)
                logits.append(event.logits.copy())

        limits = _core.RunLimits(max_outputs=n_tokens, ends_at_eos=False)
        returns = _core.RunReturns(logits=True)
        self._runs.answers([self._submit(prompt, policy, limits, returns, list(forced))], take)
        return tokens, logits

    def _first_token(self, prompt: list[int], policy: str) -> tuple[float, _core.SparseReport]:
        """Seconds from the first step of the prompt, or of its scoring, to the first output."""
        reports = []

        def take(event: Event) -> None:
            if isinstance(event, _core.StartedEvent):
                reports.append(event.sparse)

        limits = _core.RunLimits(max_outputs=1, ends_at_eos=False)
        (end,) = self._runs.answers([self._submit(prompt, policy, limits, _core.RunReturns(), [])], take)
        assert isinstance(end, _core.FinishedEvent) and len(reports) == 1 and reports[0] is not None
        return end.timings.prefill_ns * NS, reports[0]

    def _submit(
        self, prompt: list[int], policy: str, limits: _core.RunLimits, returns: _core.RunReturns, forced: list[int]
    ) -> Submit:
        sequence = self._runs.client.next_sequence()
        return lambda ticket: self._runs.client.engine.generate(
            ticket,
            sequence,
            prompt,
            sampling=_core.SamplingOptions(temperature=0),
            bypass_prefix=True,
            limits=limits,
            returns=returns,
            sparse_policy=policy,
            sparse_keep=self._keep,
            sparse_backbone=self._backbone,
            forced=forced,
        )
