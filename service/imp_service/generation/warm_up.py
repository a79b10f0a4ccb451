"""The first step of a model: it draws a few tokens, or computes a vector. Their bits are a part of its fingerprint."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

from imp_service.api.options import SpeculationOptions
from imp_service.api.vectors import EmbedOptions
from imp_service.core import (
    CoreSampling,
    Error,
    Event,
    FailedEvent,
    FinishedEvent,
    InternalError,
    RunLimits,
    RunReturns,
    TokenEvent,
    make_error,
)
from imp_service.generation.embedding_facts import NONE
from imp_service.generation.step import row_bytes

if TYPE_CHECKING:
    from imp_service.generation.runtime import ModelRuntime

# A prefill of several rows, then steps of one.
PROMPT_TOKENS = 4
OUTPUT_TOKENS = 3


def warm_up(model: ModelRuntime) -> str:
    """The SHA-256 of the logits of a few outputs, or of a vector; empty if the model makes neither.

    Raises BUG if something of it is not finite or not right.
    """
    if model.core.has_head:
        return _warm_up_outputs(model)
    if model.embedder.facts.pooling != NONE:
        return _warm_up_vector(model)
    return ""


def _warm_up_outputs(model: ModelRuntime) -> str:
    n_prompt = max(1, min(PROMPT_TOKENS, model.max_context - OUTPUT_TOKENS))
    n_output = max(1, min(OUTPUT_TOKENS, model.max_context - n_prompt))
    step = _FirstStep()
    step.run(model, [token % model.n_tokens for token in range(n_prompt)], n_output)
    if len(step.tokens) != n_output or not all(0 <= token < model.n_tokens for token in step.tokens):
        raise _failed(f"it gave {len(step.tokens)} tokens, expected {n_output} of the vocabulary")
    if not all(map(math.isfinite, step.logprobs)):
        raise _failed("it gave probabilities that are not numbers")
    return step.digest.hexdigest()


class _FirstStep:
    """A run of the sampler that takes the most likely token. Digests each row while the engine computes the next."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.digest = hashlib.sha256()
        self._end: FinishedEvent | FailedEvent | None = None

    def run(self, model: ModelRuntime, tokens: list[int], n_output: int) -> None:
        """Runs it to its end. Raises its failure."""
        client = model.client
        most_guesses, drafters = model.options.guessing(SpeculationOptions())
        ticket = client.expect(self._take)
        try:
            client.engine.generate(
                ticket,
                client.next_sequence(),
                tokens,
                sampling=CoreSampling(temperature=0.0),
                bypass_prefix=True,
                limits=RunLimits(max_outputs=n_output, ends_at_eos=False),
                returns=RunReturns(logprobs=True, logits=True),
                max_draft_tokens=most_guesses,
                drafters=drafters,
            )
            client.wait(lambda: self._end is not None)
        finally:
            client.forget(ticket)
        if isinstance(self._end, FailedEvent):
            raise make_error(self._end.reason, self._end.message, self._end.details)

    def _take(self, event: Event) -> None:
        if isinstance(event, TokenEvent):
            self.tokens.append(event.token)
            self.logprobs.append(event.logprob)
            self.digest.update(row_bytes(event.logits))
        elif isinstance(event, FinishedEvent | FailedEvent):
            self._end = event


def _warm_up_vector(model: ModelRuntime) -> str:
    """The engine refuses a vector that is not finite."""
    from imp_service.generation.embedding import CallPlan
    from imp_service.generation.pairs import InputPlan
    from imp_service.generation.vector_calls import OwnCall
    from imp_service.generation.vector_run import VectorRun

    tokens = [token % model.n_tokens for token in range(min(PROMPT_TOKENS, model.embedder.facts.max_tokens))]
    plan = CallPlan([InputPlan(tokens)], EmbedOptions(normalize=False))
    try:
        vectors = OwnCall(model, plan, "texts", VectorRun.vectors).result()
    except Error as error:
        raise _failed(f"it gave no vector: {error.message}") from error
    if vectors.width != model.core.vector_width:
        raise _failed(f"it gave a vector of {vectors.width} numbers, expected {model.core.vector_width}")
    return hashlib.sha256(np.asarray(vectors, "<f4").tobytes()).hexdigest()


def _failed(why: str) -> InternalError:
    error = make_error("BUG", f"the warm-up failed: {why}")
    assert isinstance(error, InternalError)  # narrows
    return error
