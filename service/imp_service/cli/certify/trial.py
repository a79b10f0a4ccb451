"""Asks a model the same questions with all of each prompt and with a part of it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imp_service.cli.certify.questions import Question
from imp_service.cli.certify.verdict import FirstToken, Pairs
from imp_service.core.errors import make_error

if TYPE_CHECKING:
    from imp_service.api.replies import GenerationResult
    from imp_service.generation import LanguageModel
    from imp_service.generation.generation import Generation

WHOLE, PART = "dense", "sparse"
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PairedAnswer:
    """One question, answered both ways."""

    question: Question
    prompt_tokens: int
    evaluated_tokens: int
    whole: str
    part: str

    @property
    def is_right(self) -> tuple[bool, bool]:
        """With all of the prompt, and with a part of it."""
        return is_right(self.whole, self.question.answers), is_right(self.part, self.question.answers)


def is_right(text: str, answers: Sequence[str]) -> bool:
    """Whether a text has one of the answers as whole words."""
    return any(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) for answer in answers)


def pairs_of(answers: Sequence[PairedAnswer]) -> Pairs:
    """Counts the answers."""
    right = [each.is_right for each in answers]
    return Pairs(len(right), right.count((True, True)), right.count((True, False)), right.count((False, True)))


class PairTrial:
    """Runs on one model, without the prefix cache. Every answer is greedy."""

    def __init__(self, model: LanguageModel, *, is_chat: bool, answer_tokens: int, report: Report) -> None:
        self._model = model
        self._is_chat = is_chat
        self._answer_tokens = answer_tokens
        self._report = report

    def count_tokens(self, text: str) -> int:
        """The tokens of a text without special ones."""
        return len(self._model.tokenize(text, add_special_tokens=False))

    def ask(self, questions: Sequence[Question]) -> list[PairedAnswer]:
        """The outcome of each question."""
        answers = []
        for number, question in enumerate(questions, 1):
            self._report(f"question {number} of {len(questions)}")
            begun = [self._begin(question, policy, self._answer_tokens) for policy in (WHOLE, PART)]
            whole, part = (each.result() for each in begun)
            answers.append(PairedAnswer(question, whole.usage.prompt_tokens, _evaluated(part), whole.text, part.text))
        return answers

    def times(self, question: Question, concurrency: int, reps: int) -> FirstToken:
        """The time to the first token while this prompt is asked several times at once, in turn both ways."""
        seconds: dict[str, list[float]] = {WHOLE: [], PART: []}
        n_tokens = 0
        for rep in range(reps):
            self._report(f"{concurrency} at once, repetition {rep + 1} of {reps}")
            for policy in (WHOLE, PART) if rep % 2 == 0 else (PART, WHOLE):
                begun = [self._begin(question, policy, 1) for _ in range(concurrency)]
                results = [each.result() for each in begun]
                n_tokens = results[0].usage.prompt_tokens
                seconds[policy].append(statistics.fmean(each.timings.queue + each.timings.prefill for each in results))
        return FirstToken(concurrency, n_tokens, *(statistics.median(seconds[policy]) for policy in (WHOLE, PART)))

    def _begin(self, question: Question, policy: str, n_tokens: int) -> Generation:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": n_tokens, "bypass_prefix": True}
        if self._is_chat:
            return self._model.chat(question.prompt, sparse_prefill=policy, **options)
        return self._model.generate(f"{question.prompt}\nAnswer:", sparse_prefill=policy, **options)


def _evaluated(result: GenerationResult) -> int:
    """The tokens of the prompt that were evaluated. Raises an error if all of them were."""
    report = result.sparse_prefill
    if report is None or not report.is_sparse:
        reason = "not reported" if report is None else report.reason
        raise make_error("FEATURE_DISABLED", f"sparse_prefill: a prompt was evaluated as a whole: {reason}", {})
    return result.usage.prompt_tokens - report.scored_tokens + report.selected_tokens
