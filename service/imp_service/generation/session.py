"""A sequence that its caller drives token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from imp_service.core import ENGINE_STOPPED, UNASKED, DoneEvent, Event, FailedEvent, TokenEvent, make_error
from imp_service.generation.defaults import seed_of, with_seed
from imp_service.generation.generation import Generation
from imp_service.generation.options import GenerationRequest, Prompt, SamplingOptions, StepOptions
from imp_service.generation.replies import StepOutput
from imp_service.generation.scores import HeldScores, candidates_of
from imp_service.generation.session_text import SessionText
from imp_service.generation.step import StepFold, step_limits, step_returns, timings_of
from imp_service.generation.validate import invalid, refuse, sampling_violations, step_violations, token_violations

if TYPE_CHECKING:
    from imp_service.generation.language_model import LanguageModel

DEFAULT_STEP = StepOptions()


class Session:
    """Holds `position` tokens and perhaps a pending one: sampled, not yet evaluated. For one thread at a time.

    A step evaluates the tokens given to it, or the pending one, and samples the next. Closing frees its blocks.
    """

    def __init__(self, model: LanguageModel, sequence: int, text: SessionText, *, seed: int, position: int = 0) -> None:
        self._model = model
        self._text = text
        self._is_open = True
        self.sequence = sequence
        self.position = position
        self.seed = seed  # of the sampler in force

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self.close()

    def prefill(
        self,
        prompt: Prompt,
        step: StepOptions = DEFAULT_STEP,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
        base: int | None = None,
    ) -> StepOutput:
        """Evaluates a prompt after what is held, and samples. Special tokens are added where nothing is held yet."""
        tokens = self._model.prompt_ids(prompt, begins=self.position == 0)
        if not tokens:
            raise invalid("prompt", "holds no token")
        fold = self.submit_step(tokens, step, sampling=sampling, position=position, base=base, rebase=base is None)
        return self.finish_step(fold, tokens, is_prefill=True)

    def decode_step(
        self,
        tokens: Sequence[int] = (),
        step: StepOptions = DEFAULT_STEP,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
    ) -> StepOutput:
        """Evaluates `tokens`, or the pending one where there are none, and samples."""
        self.check_tokens(tokens)
        return self.finish_step(self.submit_step(tokens, step, sampling=sampling, position=position), tokens)

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raises where one is no token of the model."""
        refuse(token_violations("token_ids", tokens, self._model.n_tokens))

    def generate(self, request: GenerationRequest) -> Generation:
        """Goes on by itself; the request's prompt is what the session holds, its own must be empty."""
        return self._model.generate_on(self, request)

    def fork(self, position: int | None = None) -> Session:
        """A session that shares the first `position` tokens, or all of them and the pending one."""
        copy = self._model.client.next_sequence()
        done = self._call(lambda ticket: self._model.client.engine.fork(ticket, self.sequence, copy, position))
        return self.forked(copy, done.position)

    def forked(self, copy: int, position: int) -> Session:
        """The session of a fork that the engine has made."""
        return Session(self._model, copy, self._text.copy(position), seed=self.seed, position=position)

    def truncate(self, position: int) -> None:
        """Drops what follows the first `position` tokens, and the pending one."""
        self.truncated(
            self._call(lambda ticket: self._model.client.engine.truncate(ticket, self.sequence, position)).position
        )

    def truncated(self, position: int) -> None:
        """The engine has dropped what followed the first `position` tokens."""
        if self.position != position:
            self.position = position
            self._text.truncate(position)

    def close(self, ticket: int = UNASKED) -> None:
        """Frees the session; it is no error to do so twice, nor of an engine that has stopped: it holds nothing.

        The engine answers to the ticket; raises where somebody waits for an answer that does not come.
        """
        if self._is_open:
            self._is_open = False
            if not self._model.client.is_closed:
                with suppress(*(ENGINE_STOPPED if ticket == UNASKED else ())):
                    self._model.client.engine.close(ticket, self.sequence)

    def submit_step(
        self,
        tokens: Sequence[int],
        step: StepOptions,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
        base: int | None = None,
        rebase: bool = False,
        on_done: Callable[[], None] | None = None,
    ) -> StepFold:
        """Begins a step with tokens that are checked; fold_step() gives its output once the fold is done."""
        model = self._model
        refuse(step_violations(step, model.vocab_size, model.n_tokens))
        if sampling is not None:
            refuse(sampling_violations(sampling, model.n_tokens))
            sampling = with_seed(sampling)
        fold = StepFold(on_done)
        fold.ticket = model.client.expect(fold.feed)
        try:
            model.client.engine.run(
                fold.ticket,
                self.sequence,
                list(tokens),
                position=position,
                sampling=None if sampling is None else model.resolve_sampling(sampling),
                base=base,
                rebase=rebase,
                limits=step_limits(step, model.eos_tokens),
                returns=step_returns(step),
                allowed=step.allowed_token_mask,
            )
        except BaseException:
            model.client.forget(fold.ticket)
            raise
        if sampling is not None:
            self.seed = seed_of(sampling)
        return fold

    def finish_step(self, fold: StepFold, tokens: Sequence[int], *, is_prefill: bool = False) -> StepOutput:
        """Waits for a step and folds its output; raises its failure, which changes nothing."""
        try:
            self._model.client.wait(lambda: fold.is_done)
        finally:
            self._model.client.forget(fold.ticket)
        return self.fold_step(fold, tokens, is_prefill=is_prefill)

    def fold_step(self, fold: StepFold, tokens: Sequence[int], *, is_prefill: bool = False) -> StepOutput:
        """The output of a step that is done; raises its failure, which changes nothing.

        Once the engine has run the step, the session holds what the engine holds, whatever fails on this side.
        """
        started, drawn, finished = fold.result()
        self.position = finished.position
        try:
            text = self._text_of_step(tokens, drawn, is_prefill=is_prefill)
        except Exception:
            self._text.restart()
            raise
        logits: np.ndarray = drawn.logits if drawn is not None else started.logits
        return StepOutput(
            position=finished.position,
            token_id=None if drawn is None else drawn.token,
            logprob=None if drawn is None else drawn.logprob,
            text=text,
            eos=drawn is not None and drawn.eos,
            cached_tokens=started.n_cached_tokens,
            candidates=candidates_of(started.candidates if drawn is None else drawn.candidates),
            logits=logits.astype("<f4").tobytes(),
            held_scores=HeldScores(started.scores),
            timings=timings_of(finished.timings),
        )

    def _text_of_step(self, tokens: Sequence[int], drawn: TokenEvent | None, *, is_prefill: bool) -> str:
        """The text that a step's token completes, after the tokens that it evaluated."""
        if is_prefill:
            self._text.restart()
        elif tokens:
            self._text.replace_pending(self.position - len(tokens), tokens)
        return "" if drawn is None else self._text.sampled(self.position, drawn.token)

    def generated(self, position: int) -> None:
        """A generation on this session ended with `position` tokens held."""
        self._text.restart()
        self.position = position

    def _call(self, submit: Callable[[int], None]) -> DoneEvent:
        """Submits a command and waits for its answer."""
        answers: list[Event] = []
        client = self._model.client
        ticket = client.expect(answers.append)
        try:
            submit(ticket)
            client.wait(lambda: bool(answers))
        finally:
            client.forget(ticket)
        answer = answers[0]
        if isinstance(answer, FailedEvent):
            raise make_error(answer.reason, answer.message, answer.details)
        assert isinstance(answer, DoneEvent)
        return answer
