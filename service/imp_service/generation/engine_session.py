"""A session in the engine, for service and library: submits runs and processes their events. Never waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from imp_service.api.errors import invalid
from imp_service.api.options import (
    DEFAULT_CACHE,
    CacheOptions,
    GenerationRequest,
    SamplingOptions,
    StepOptions,
)
from imp_service.api.replies import StepOutput
from imp_service.core import ENGINE_STOPPED, UNASKED, CoreMediaSpan, TokenEvent
from imp_service.generation.held_scores import HeldScores, candidates_of
from imp_service.generation.make_fold import make_fold
from imp_service.generation.prompt_images import ReadPrompt
from imp_service.generation.run import GenerationPlan, returns_of
from imp_service.generation.runtime import ModelRuntime, cache_scope
from imp_service.generation.session_text import SessionText
from imp_service.generation.step import StepFold, row_bytes, step_limits, step_returns, timings_of


class EngineSession:
    """Holds `position` tokens and perhaps a pending one: sampled, not yet evaluated. For one thread at a time."""

    def __init__(
        self,
        runtime: ModelRuntime,
        sequence: int,
        text: SessionText,
        sampling: SamplingOptions,
        *,
        payer: str = "",
        position: int = 0,
    ) -> None:
        self._text = text
        self._payer = payer
        self.is_open = True
        self.runtime = runtime
        self.sequence = sequence
        self.position = position
        self.sampling = sampling  # in force

    @classmethod
    def open(
        cls,
        runtime: ModelRuntime,
        sampling: SamplingOptions | None = None,
        *,
        tenant: str = "",
        payer: str = "",
        priority: int = 0,
        cache: CacheOptions = DEFAULT_CACHE,
    ) -> EngineSession:
        """An empty session. `payer` shares the engine with others; by default the tenant."""
        runtime.embedder.require_generation()
        in_force = runtime.options.sampling(sampling or SamplingOptions())
        sequence = runtime.client.next_sequence()
        runtime.client.engine.open(
            sequence,
            kind="session",
            sampling=runtime.options.core_sampling(in_force),
            priority=priority,
            tenant=payer or tenant,
            cache_scope=cache_scope(tenant, cache.salt),
            bypass_prefix=cache.bypass_prefix,
        )
        return cls(runtime, sequence, SessionText(runtime.tokenizer), in_force, payer=payer or tenant)

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def plan(self, request: GenerationRequest, *, keeps_sampler: bool | None = None) -> GenerationPlan:
        """A generation after what the session holds. It keeps the sampler if the request sets no sampling option."""
        runtime = self.runtime
        if request.prompt:
            raise invalid("prompt", "given, expected none: the session holds it")
        if request.num_sequences != 1:
            raise invalid("num_sequences", f"{request.num_sequences}, expected 1 with a session")
        if request.resume is not None:
            raise invalid("resume", "given, expected none with a session")
        if request.sparse_prefill.is_wanted:
            raise invalid("sparse_prefill", "given, expected none: a session keeps every token for its later turns")
        if keeps_sampler is None:
            keeps_sampler = request.sampling == SamplingOptions()
        request = runtime.with_tools(request)
        sampling = self.sampling if keeps_sampler else runtime.options.sampling(request.sampling)
        resolved = None if keeps_sampler else runtime.options.core_sampling(sampling)
        limits, returns = runtime.options.limits(request.stop), returns_of(request.output)
        max_draft_tokens, drafters = runtime.options.guessing(request.speculation)
        budget = runtime.options.reasoning_budget(request, ())

        def submit(ticket: int) -> None:
            runtime.client.engine.run(
                ticket,
                self.sequence,
                resume=True,
                sampling=resolved,
                limits=limits,
                returns=returns,
                budget=budget,
                constrained=request.constraint is not None,
                max_draft_tokens=max_draft_tokens,
                drafters=drafters,
                tenant=self._payer,
            )

        def holds(position: int) -> None:
            self.sampling = sampling
            self.generated(position)

        fold = make_fold(runtime.text, request, sampling, ReadPrompt([]))
        return GenerationPlan(fold, [self.sequence], submit, 0, request.stop.time_limit, session_holds=holds)

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
        media: Sequence[CoreMediaSpan] = (),
        forced: Sequence[int] = (),
    ) -> StepFold:
        """Begins a step with tokens that are checked. Once the fold is done, fold_step() gives the output.

        `forced`: the output, instead of the one that the sampler draws.
        """
        runtime = self.runtime
        if sampling is not None:
            sampling = runtime.options.sampling(sampling)
        fold = StepFold(on_done, sampling)
        fold.ticket = runtime.client.expect(fold.feed)
        try:
            runtime.client.engine.run(
                fold.ticket,
                self.sequence,
                list(tokens),
                position=position,
                sampling=None if sampling is None else runtime.options.core_sampling(sampling),
                base=base,
                rebase=rebase,
                limits=step_limits(step, runtime.eos_tokens),
                returns=step_returns(step),
                allowed=step.allowed_token_mask,
                tenant=self._payer,
                media=media,
                forced=list(forced),
            )
        except BaseException:
            runtime.client.forget(fold.ticket)
            raise
        return fold

    def fold_step(
        self, fold: StepFold, tokens: Sequence[int], *, is_prefill: bool = False, text_from: int | None = None
    ) -> StepOutput:
        """The output of a step that is done. Raises its failure, which changes nothing.

        Once the engine has run the step, the session holds what the engine holds, even if the text fails. `text_from`:
        the number of held tokens where the text of a prefill begins, if that is not its end.
        """
        started, drawn, finished = fold.result()
        self.position = finished.position
        if fold.sampling is not None:
            self.sampling = fold.sampling
        try:
            text = self._text_of_step(tokens, drawn, is_prefill=is_prefill, text_from=text_from)
        except Exception:
            self._text.restart()
            raise
        logits = drawn.logits if drawn is not None else started.logits
        return StepOutput(
            position=finished.position,
            token_id=None if drawn is None else drawn.token,
            logprob=None if drawn is None else drawn.logprob,
            text=text,
            eos=drawn is not None and drawn.eos,
            cached_tokens=started.n_cached_tokens,
            candidates=candidates_of(started.candidates if drawn is None else drawn.candidates),
            logits=row_bytes(logits),
            held_scores=HeldScores(started.scores),
            timings=timings_of(finished.timings),
        )

    def forked(self, copy: int, position: int) -> EngineSession:
        """The session of a fork that the engine has made."""
        text = self._text.copy(position, shares_all=position == self.position)
        return EngineSession(self.runtime, copy, text, self.sampling, payer=self._payer, position=position)

    def truncated(self, position: int) -> None:
        """Notes that the engine has dropped what followed the first `position` tokens."""
        if self.position != position:
            self.position = position
            self._text.truncate(position)

    def generated(self, position: int) -> None:
        """Notes that a generation on this session ended with `position` tokens held."""
        self._text.restart()
        self.position = position

    def close(self, ticket: int = UNASKED) -> None:
        """Frees the session. Closing it again, or after the engine has stopped, does nothing.

        The engine answers to the ticket. With a ticket of the caller it raises if the engine has stopped.
        """
        client = self.runtime.client
        if self.is_open:
            self.is_open = False
            if not client.is_closed:
                with suppress(*(ENGINE_STOPPED if ticket == UNASKED else ())):
                    client.engine.close(ticket, self.sequence)

    def _text_of_step(
        self, tokens: Sequence[int], drawn: TokenEvent | None, *, is_prefill: bool, text_from: int | None
    ) -> str:
        """The text that a step's token completes, after the tokens that it evaluated."""
        if is_prefill:
            self._text.restart()
            if text_from is not None and text_from > self.position:
                return ""
            if text_from is not None:
                first = self.position - len(tokens)
                self._text.replace_pending(text_from, tokens[text_from - first :])
        elif tokens:
            self._text.replace_pending(self.position - len(tokens), tokens)
        return "" if drawn is None else self._text.sampled(self.position, drawn.token)
