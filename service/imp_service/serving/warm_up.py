"""A first generation before anybody is told that the server is ready: what a request will need is then in place."""

from __future__ import annotations

import math

from imp_service.core import InternalError, make_error
from imp_service.generation import (
    CacheOptions,
    Chunk,
    GenerationRequest,
    LanguageModel,
    OutputOptions,
    SamplingOptions,
    StopOptions,
)

# A prefill of several rows, then steps of one.
PROMPT_TOKENS = 4
OUTPUT_TOKENS = 3


def warm_up(model: LanguageModel) -> None:
    """Raises BUG where the model's output is none. Called on a thread that may wait."""
    n_prompt = max(1, min(PROMPT_TOKENS, model.max_context - OUTPUT_TOKENS))
    n_output = max(1, min(OUTPUT_TOKENS, model.max_context - n_prompt))
    request = GenerationRequest(
        [token % model.n_tokens for token in range(n_prompt)],
        sampling=SamplingOptions(temperature=0.0),
        stop=StopOptions(max_tokens=n_output, ignore_eos=True),
        output=OutputOptions(text=False, logprobs=True),
        cache=CacheOptions(bypass_prefix=True),
    )
    tokens: list[int] = []
    logprobs: list[float] = []
    with model.generate(request) as generation:
        for reply in generation:
            if isinstance(reply, Chunk):
                tokens += reply.token_ids
                logprobs += reply.logprobs or ()
    if len(tokens) != n_output or not all(0 <= token < model.n_tokens for token in tokens):
        raise failed(f"it gave {len(tokens)} tokens, expected {n_output} of the vocabulary")
    if len(logprobs) != n_output or not all(map(math.isfinite, logprobs)):
        raise failed("it gave probabilities that are no numbers")


def failed(why: str) -> InternalError:
    """The model cannot be served."""
    error = make_error("BUG", f"the warm-up failed: {why}")
    assert isinstance(error, InternalError)  # narrows
    return error
