"""A loaded model as Python uses it: generations, sessions, tokens and text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from types import TracebackType
from typing import Self

import numpy as np

from imp_service.core import CoreSampling, Error, LoadedModel, RunLimits, RunReturns, make_error
from imp_service.core.checkpoint import model_path
from imp_service.generation.defaults import default_sampling, resolve, sampling_warnings, seed_of, with_seed
from imp_service.generation.fold import GenerationFold
from imp_service.generation.generation import Clock, Generation
from imp_service.generation.options import CacheOptions, GenerationRequest, Prompt, SamplingOptions, StepOptions
from imp_service.generation.plan import GenerationPlan
from imp_service.generation.replies import StepOutput
from imp_service.generation.session import DEFAULT_STEP, Session
from imp_service.generation.session_text import SessionText
from imp_service.generation.step import StepFold
from imp_service.generation.text_side import TextSide
from imp_service.generation.validate import (
    cache_violations,
    invalid,
    refuse,
    request_violations,
    sampling_violations,
    tenant_violations,
    token_pieces,
    token_violations,
)
from imp_service.text import (
    ChatPrompt,
    StopRules,
    StopStrings,
    TemplateInvalid,
    TextSpan,
    TextStream,
    Tokenizer,
    TooManyTokens,
)
from imp_service.text.errors import naming_file

UP_TO_CONTEXT = -1
DEFAULT_CACHE = CacheOptions()
# Counts in the core have 31 bits: far beyond any context.
MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionStep:
    """A session's part of a batched step."""

    session: Session
    tokens: Sequence[int] = ()
    step: StepOptions = DEFAULT_STEP


def cache_scope(tenant: str, salt: str) -> str:
    """Names who shares prefix blocks. The length keeps (tenant, salt) pairs apart whatever they hold."""
    return f"{len(tenant)}:{tenant}{salt}"


class LanguageModel:
    """One model with its engine. May be used from several threads; its sessions and generations each from one."""

    def __init__(
        self,
        loaded: LoadedModel,
        clock: Clock = time.monotonic,
        *,
        make_tokenizer: Callable[[], Tokenizer] | None = None,
    ) -> None:
        """`make_tokenizer` gives that of the file; without it one is built."""
        self._loaded = loaded
        self._clock = clock
        self.client = loaded.client
        self.name = loaded.name
        self.config = loaded.config
        self.core = loaded.model
        self.weight_files = loaded.files
        self.vocab_size: int = loaded.model.vocab_size
        # Ids below it are tokens: the one bound of every id that a caller gives. Logits may have further entries.
        self.n_tokens: int = loaded.model.n_tokens
        self.max_context: int = loaded.model.max_context
        self.text = TextSide(loaded.metadata, loaded.config.settings, self.vocab_size, make_tokenizer)
        self.tokenizer = self.text.tokenizer
        self.eos_tokens: list[int] = sorted(self.tokenizer.eos_ids)
        wanted = loaded.config.settings.model.overrides.default_sampling
        self.default_sampling = default_sampling(loaded.metadata, wanted)
        self.warnings: tuple[str, ...] = (*loaded.warnings, *sampling_warnings(loaded.metadata, wanted))
        self._tokens_with = lru_cache(maxsize=64)(self._find_tokens_with)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stops the engine; whoever still waits for it gets CANCELLED."""
        self.client.close()
        self.text.close()
        for file in self.weight_files:
            file.close()

    def prepare_chats(self) -> None:
        """Compiles the chat templates, before a conversation needs one.

        A template that the settings name must compile. If one of the file's own does not, that is a warning; with
        `model.strict` it is an error.
        """
        templates = self.text.templates
        try:
            with naming_file(model_path(self.config).name):
                found = templates.compile_all()
        except TemplateInvalid as error:
            if templates.is_named or self.config.settings.model.strict:
                raise
            found = [f"{error}; conversations are refused"]
        self.warnings = (*self.warnings, *found)

    def generate(self, request: GenerationRequest | Prompt) -> Generation:
        """Runs a generation; iterate over the replies."""
        if not isinstance(request, GenerationRequest):
            request = GenerationRequest(request)
        return Generation(self.client, self.plan(request), self._clock)

    def plan(self, request: GenerationRequest) -> GenerationPlan:
        """A generation ready to be submitted. May be called from any thread."""
        refuse(request_violations(request, self.n_tokens))
        prompt_ids = self.prompt_ids(request.prompt, begins=True)
        if not prompt_ids:
            raise invalid("prompt", "holds no token")
        sampling = with_seed(request.sampling)
        resolved = self.resolve_sampling(sampling)
        sequences = [self.client.next_sequence() for _ in range(request.num_sequences)]
        limits, returns = self._limits(request), self._returns(request)

        def submit(ticket: int) -> None:
            self.client.engine.generate(
                ticket,
                sequences[0],
                prompt_ids,
                sampling=resolved,
                priority=request.priority,
                tenant=request.tenant,
                cache_scope=cache_scope(request.tenant, request.cache.salt),
                bypass_prefix=request.cache.bypass_prefix,
                limits=limits,
                returns=returns,
                constrained=request.constraint is not None,
                siblings=sequences[1:],
            )

        fold = self._fold(request, seed_of(sampling), prompt_ids)
        return GenerationPlan(fold, sequences, submit, len(prompt_ids), request.stop.time_limit)

    def generate_on(self, session: Session, request: GenerationRequest) -> Generation:
        """Runs a generation on what a session holds; the session keeps what is delivered."""
        return Generation(self.client, self.plan_on(session, request), self._clock)

    def plan_on(
        self, session: Session, request: GenerationRequest, *, keeps_sampler: bool | None = None
    ) -> GenerationPlan:
        """A generation on a session, ready to be submitted. It keeps the sampler where the request names no option."""
        refuse(request_violations(request, self.n_tokens))
        if request.prompt:
            raise invalid("prompt", "given, expected none: the session holds it")
        if request.num_sequences != 1:
            raise invalid("num_sequences", f"{request.num_sequences}, expected 1 with a session")
        if keeps_sampler is None:
            keeps_sampler = request.sampling == SamplingOptions()
        sampling = with_seed(request.sampling)
        resolved = None if keeps_sampler else self.resolve_sampling(sampling)
        limits, returns = self._limits(request), self._returns(request)

        def submit(ticket: int) -> None:
            self.client.engine.run(
                ticket,
                session.sequence,
                resume=True,
                sampling=resolved,
                limits=limits,
                returns=returns,
                constrained=request.constraint is not None,
            )
            if not keeps_sampler:
                session.seed = seed_of(sampling)

        fold = self._fold(request, session.seed if keeps_sampler else seed_of(sampling), [])
        return GenerationPlan(fold, [session.sequence], submit, 0, request.stop.time_limit, session.generated)

    def open(
        self,
        sampling: SamplingOptions | None = None,
        *,
        tenant: str = "",
        priority: int = 0,
        cache: CacheOptions = DEFAULT_CACHE,
    ) -> Session:
        """A session that holds nothing yet."""
        options = with_seed(sampling or SamplingOptions())
        refuse(
            chain(
                sampling_violations(options, self.n_tokens),
                cache_violations(cache),
                tenant_violations(tenant),
            )
        )
        sequence = self.client.next_sequence()
        self.client.engine.open(
            sequence,
            kind="session",
            sampling=self.resolve_sampling(options),
            priority=priority,
            tenant=tenant,
            cache_scope=cache_scope(tenant, cache.salt),
            bypass_prefix=cache.bypass_prefix,
        )
        return Session(self, sequence, SessionText(self.tokenizer), seed=seed_of(options))

    def decode_step(self, steps: Sequence[SessionStep]) -> list[StepOutput | Error]:
        """Steps several sessions together; one that fails, even by a bug, leaves the others whole."""
        if len({step.session.sequence for step in steps}) != len(steps):
            raise invalid("steps", "a session is named twice")
        results: list[StepOutput | Error] = []
        submitted: list[StepFold | Error] = []
        with self.client.together():
            for step in steps:
                try:
                    step.session.check_tokens(step.tokens)
                    submitted.append(step.session.submit_step(step.tokens, step.step))
                except Exception as error:
                    submitted.append(_as_error(error))
        for step, fold in zip(steps, submitted, strict=True):
            if isinstance(fold, Error):
                results.append(fold)
                continue
            try:
                results.append(step.session.finish_step(fold, step.tokens))
            except Exception as error:
                results.append(_as_error(error))
        return results

    def prompt_ids(self, prompt: Prompt, *, begins: bool) -> list[int]:
        """A prompt's tokens; where it `begins` a sequence, text gets the model's special tokens."""
        if isinstance(prompt, str | ChatPrompt):
            return self._text_ids(prompt, begins=begins)
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(prompt, bytes | bytearray | str):
            raise invalid("prompt", f"{type(prompt).__name__}, expected text, token ids or a ChatPrompt")
        if len(prompt) > self.max_context:
            raise self._too_long(len(prompt))  # before it is looked at: it may be of any length
        refuse(token_violations("token_ids", prompt, self.n_tokens))
        tokens: list[int] = []
        for _, piece in token_pieces(prompt):
            tokens += map(int, piece)
        return tokens

    def require_fitting(self, prompt: Prompt) -> None:
        """Raises CONTEXT_TOO_LONG if a text cannot fit, judged by its size alone; takes microseconds."""
        if isinstance(prompt, str):
            n_tokens = self.tokenizer.least_tokens(len(prompt.encode(errors="replace")))
            if n_tokens > self.max_context:
                raise self._too_long(n_tokens, "at least ")

    def _text_ids(self, prompt: str | ChatPrompt, *, begins: bool) -> list[int]:
        """The tokens of a text or a conversation. Encoding stops when they exceed the context."""
        try:
            if isinstance(prompt, str):
                spans = [TextSpan(prompt, parses_special_tokens=False)]
                return self.tokenizer.encode_spans(spans, add_special_tokens=begins, most=self.max_context)
            if not begins:
                raise invalid("prompt", "a chat, expected text or tokens: the session holds tokens already")
            return self.text.chat_ids(prompt, most=self.max_context)
        except TooManyTokens as error:
            raise self._too_long(error.n_tokens, "at least ") from None

    def _too_long(self, n_tokens: int, least: str = "") -> Error:
        details = {"prompt_tokens": str(n_tokens), "max_context_tokens": str(self.max_context)}
        words = f"a prompt of {least}{n_tokens} tokens exceeds the context of {self.max_context}"
        return make_error("CONTEXT_TOO_LONG", words, details)

    def resolve_sampling(self, sampling: SamplingOptions) -> CoreSampling:
        """The sampler that runs; unset fields take the model's defaults."""
        return resolve(with_seed(sampling), self.default_sampling, self._tokens_with)

    def _limits(self, request: GenerationRequest) -> RunLimits:
        stop = request.stop
        ceiling = self.config.settings.limits.max_tokens
        if ceiling and stop.max_tokens is not None and stop.max_tokens > ceiling:
            raise invalid("stop.max_tokens", f"{stop.max_tokens}, expected at most limits.max_tokens = {ceiling}")
        unset = ceiling or UP_TO_CONTEXT
        return RunLimits(
            max_outputs=unset if stop.max_tokens is None else min(stop.max_tokens, MOST),
            min_outputs=min(stop.min_tokens, MOST),
            must_fit=stop.max_tokens is not None,
            stop_tokens=sorted(set(stop.token_ids)),
            eos_tokens=self.eos_tokens,
            ends_at_eos=not stop.ignore_eos,
        )

    def _returns(self, request: GenerationRequest) -> RunReturns:
        output = request.output
        return RunReturns(
            logprobs=output.logprobs,
            n_candidates=output.top_logprobs,
            scores=output.prompt_logprobs,
            n_score_candidates=output.top_logprobs if output.prompt_logprobs else 0,
        )

    def _fold(self, request: GenerationRequest, seed: int, prompt_ids: list[int]) -> GenerationFold:
        stop, output = request.stop, request.output
        rules = StopRules(StopStrings(stop.strings), stop.min_tokens, stop.include_match)
        follows_text = output.text or bool(stop.strings)
        program = None if request.constraint is None else self.text.compile(request.constraint)
        return GenerationFold(
            seed=seed,
            prompt_ids=prompt_ids,
            include_match=stop.include_match,
            output=output,
            make_text=lambda: (
                TextStream(self.tokenizer.table, rules, special_tokens=output.special_tokens) if follows_text else None
            ),
            constraints=[None if program is None else program.start() for _ in range(request.num_sequences)],
        )

    def _find_tokens_with(self, text: str) -> list[int]:
        part = text.encode()
        return [token for token in range(self.tokenizer.vocab_size) if part in self.tokenizer.token_bytes(token)]


def _as_error(error: Exception) -> Error:
    """An exception as the result of one session's step."""
    if isinstance(error, Error):
        return error
    bug = make_error("BUG", f"{type(error).__name__}: {error}")
    bug.__cause__ = error
    return bug
