"""A session as the Python API has it: the caller decides token by token, and each call waits for its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from imp_service.api.arguments import GENERATION_PARAMETERS, NO_PROMPT, STEP_PARAMETERS, request_of, sampling_of
from imp_service.api.errors import invalid
from imp_service.api.keywords import take, takes_options
from imp_service.api.options import (
    DEFAULT_STEP,
    GenerationRequest,
    Prompt,
    SamplingOptions,
    SessionStep,
    StepOptions,
    seed_of,
)
from imp_service.api.replies import StepOutput
from imp_service.api.shown import session_text
from imp_service.core import DoneEvent, Error, Event, FailedEvent, make_error
from imp_service.generation.engine_session import EngineSession
from imp_service.generation.errors import translating_text_errors
from imp_service.generation.generation import Generation
from imp_service.generation.step import StepFold


class Session:
    """A sequence of tokens that its caller extends, forks and truncates. For one thread at a time.

    It holds `position` tokens, and perhaps a pending one: sampled, but not yet evaluated. A step evaluates the tokens
    that it is given, or the pending one, and samples the next. Sampling options that are given to a step stay in force
    for later steps. Closing the session, by close() or a `with` block, frees its memory.

    >>> with model.open(temperature=0) as session:
    ...     text = session.prefill("The weather today").text
    ...     while session.position < 8:
    ...         text += session.decode_step().text
    >>> text
    ' is snowy. Snow is'
    """

    def __init__(self, inner: EngineSession) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session: {session_text(self.position, self.seed, is_open=self._inner.is_open)}>"

    @property
    def position(self) -> int:
        """How many tokens it holds."""
        return self._inner.position

    @property
    def seed(self) -> int:
        """The seed of its sampler."""
        return seed_of(self._inner.sampling)

    @translating_text_errors()
    @takes_options(STEP_PARAMETERS)
    def prefill(
        self,
        prompt: Prompt,
        step: StepOptions = DEFAULT_STEP,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
        base: int | None = None,
        **options: Any,
    ) -> StepOutput:
        """Evaluates a prompt after what is held, and samples.

        Text gets the model's special tokens if nothing is held yet. If `position` is given and differs from the number
        of held tokens, the error is POSITION_MISMATCH and nothing changes. `base` is the position of output 0, for a
        sampler that continues the draws of an earlier session, or those of this one before the prefill. Without it the
        draws begin anew after the prefill.

        >>> with model.open() as session:
        ...     output = session.prefill("Once upon a time", temperature=0, top_logprobs=2)
        ...     output.text, output.position, len(output.candidates)
        (',', 4, 2)
        """
        inner = self._inner
        read = inner.runtime.prompts.read(prompt, begins=self.position == 0)
        tokens = read.ids
        if not tokens:
            raise invalid("prompt", "has no token")
        step, sampling = take(step, options), sampling_of(sampling, options)
        inner.runtime.check_step((), step, sampling)
        read.images.decode_here()
        fold = inner.submit_step(
            tokens,
            step,
            sampling=sampling,
            position=position,
            base=base,
            rebase=base is None,
            media=read.images.media,
        )
        return _finish(inner, fold, tokens, is_prefill=True)

    @translating_text_errors()
    @takes_options(STEP_PARAMETERS)
    def decode_step(
        self,
        tokens: Sequence[int] = (),
        step: StepOptions = DEFAULT_STEP,
        *,
        sampling: SamplingOptions | None = None,
        position: int | None = None,
        **options: Any,
    ) -> StepOutput:
        """Evaluates `tokens`, or the pending one if there are none, and samples.

        >>> with model.open(temperature=0) as session:
        ...     first = session.prefill("Once upon a time")
        ...     second = session.decode_step()
        ...     other = session.decode_step(model.tokenize(" was", add_special_tokens=False), logits=True)
        >>> first.text + second.text, len(other.logits) == 4 * model.vocab_size
        (', in', True)
        """
        inner = self._inner
        step, sampling = take(step, options), sampling_of(sampling, options)
        inner.runtime.check_step(tokens, step, sampling)
        return _finish(inner, inner.submit_step(tokens, step, sampling=sampling, position=position), tokens)

    @translating_text_errors()
    @takes_options(GENERATION_PARAMETERS)
    def generate(self, request: GenerationRequest = NO_PROMPT, **options: Any) -> Generation:
        """Generates after the held tokens. It takes the options of `LanguageModel.generate`.

        >>> with model.open(temperature=0) as session:
        ...     first = session.prefill("Once upon a time").text
        ...     first + session.generate(max_tokens=3).result().text
        ', in a little'
        """
        asked = request_of(request, options)
        self._inner.runtime.check(asked)
        return Generation(self._inner.runtime, self._inner.plan(asked))

    @translating_text_errors()
    def fork(self, position: int | None = None) -> Session:
        """A session that shares the first `position` tokens, or all of them and the pending one.

        >>> with model.open(temperature=0) as session:
        ...     _ = session.prefill("Once upon a time")
        ...     with session.fork() as twin:
        ...         session.decode_step().text == twin.decode_step().text
        True
        """
        inner = self._inner
        copy = inner.runtime.client.next_sequence()
        done = self._call(lambda ticket: inner.runtime.client.engine.fork(ticket, inner.sequence, copy, position))
        return Session(inner.forked(copy, done.position))

    @translating_text_errors()
    def truncate(self, position: int) -> None:
        """Drops what follows the first `position` tokens, and the pending one.

        >>> with model.open() as session:
        ...     _ = session.prefill("Once upon a time")
        ...     session.truncate(2)
        ...     session.position
        2
        """
        inner = self._inner
        inner.truncated(
            self._call(lambda ticket: inner.runtime.client.engine.truncate(ticket, inner.sequence, position)).position
        )

    def close(self) -> None:
        """Frees it. Closing it twice does nothing."""
        self._inner.close()

    def _call(self, submit: Callable[[int], None]) -> DoneEvent:
        """Submits a command and waits for its answer."""
        answers: list[Event] = []
        client = self._inner.runtime.client
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


def decode_together(steps: Sequence[SessionStep]) -> list[StepOutput | Error]:
    """Steps sessions of one model in one step. If one fails, even by a bug, the others are not affected."""
    inner = [_here(step)._inner for step in steps]
    if len({each.sequence for each in inner}) != len(steps):
        raise invalid("steps", "a session is named twice")
    if not steps:
        return []
    begun: list[StepFold | Error] = []
    with inner[0].runtime.client.together():
        for session, step in zip(inner, steps, strict=True):
            try:
                session.runtime.check_step(step.tokens, step.step)
                begun.append(session.submit_step(step.tokens, step.step))
            except Exception as error:
                begun.append(_as_error(error))
    results: list[StepOutput | Error] = []
    for session, step, fold in zip(inner, steps, begun, strict=True):
        try:
            results.append(fold if isinstance(fold, Error) else _finish(session, fold, step.tokens))
        except Exception as error:
            results.append(_as_error(error))
    return results


def _here(step: SessionStep) -> Session:
    if not isinstance(step.session, Session):
        raise TypeError(f"steps: {type(step.session).__name__}, expected sessions of a loaded model")
    return step.session


def _finish(inner: EngineSession, fold: StepFold, tokens: Sequence[int], *, is_prefill: bool = False) -> StepOutput:
    """Waits for a step and returns its output. Raises its failure, which changes nothing."""
    client = inner.runtime.client
    try:
        client.wait(lambda: fold.is_done)
    finally:
        client.forget(fold.ticket)
    return inner.fold_step(fold, tokens, is_prefill=is_prefill)


def _as_error(error: Exception) -> Error:
    """An exception as the result of one session's step."""
    if isinstance(error, Error):
        return error
    bug = make_error("BUG", f"{type(error).__name__}: {error}")
    bug.__cause__ = error
    return bug
