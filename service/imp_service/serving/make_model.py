"""Makes the model that a server serves: loads it, compiles its chat templates, and generates a first few tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module

from imp_service.api.options import CacheOptions, GenerationRequest, OutputOptions, SamplingOptions, StopOptions
from imp_service.api.vectors import EmbedOptions
from imp_service.config import Config
from imp_service.core import Error, InternalError, Progress, make_error
from imp_service.core.background_load import WeightsLoad
from imp_service.generation import Generation, ModelRuntime, finish_load, load_model
from imp_service.generation.embedding import CallPlan
from imp_service.generation.embedding_facts import NONE
from imp_service.generation.pairs import InputPlan
from imp_service.generation.vector_calls import OwnCall
from imp_service.generation.vector_run import VectorRun

# A prefill of several rows, then steps of one.
PROMPT_TOKENS = 4
OUTPUT_TOKENS = 3

MakeModel = Callable[[Config, Progress], ModelRuntime]


def make_model(config: Config, progress: Progress) -> ModelRuntime:
    """A model that is ready to serve. Takes seconds: call it on a thread that may wait."""
    return _prepared(load_model(config, progress=progress))


def make_model_of(weights: WeightsLoad) -> MakeModel:
    """The same for weights that are being loaded. Meanwhile it imports what compiles the chat templates."""

    def make(_: Config, progress: Progress) -> ModelRuntime:
        import_module("imp_service.text.templates.chat_template")
        return _prepared(finish_load(weights, progress))

    return make


def _prepared(model: ModelRuntime) -> ModelRuntime:
    try:
        model.prepare_chats()
        warm_up(model)
    except BaseException:
        model.close()
        raise
    return model


def warm_up(model: ModelRuntime) -> None:
    """Generates a few tokens, or computes a vector. Raises BUG if something of it is not finite or not right."""
    if not model.core.has_head:
        if model.embedder.facts.pooling != NONE:
            warm_up_vectors(model)
        return
    n_prompt = max(1, min(PROMPT_TOKENS, model.max_context - OUTPUT_TOKENS))
    n_output = max(1, min(OUTPUT_TOKENS, model.max_context - n_prompt))
    request = GenerationRequest(
        [token % model.n_tokens for token in range(n_prompt)],
        sampling=SamplingOptions(temperature=0.0),
        stop=StopOptions(max_tokens=n_output, ignore_eos=True),
        output=OutputOptions(text=False, logprobs=True),
        cache=CacheOptions(bypass_prefix=True),
    )
    result = Generation(model, model.plan(request)).result()
    tokens, logprobs = result.token_ids, result.logprobs
    if len(tokens) != n_output or not all(0 <= token < model.n_tokens for token in tokens):
        raise failed(f"it gave {len(tokens)} tokens, expected {n_output} of the vocabulary")
    if len(logprobs) != n_output or not all(map(math.isfinite, logprobs)):
        raise failed("it gave probabilities that are not numbers")


def warm_up_vectors(model: ModelRuntime) -> None:
    """Computes a vector. The engine refuses one that is not finite."""
    tokens = [token % model.n_tokens for token in range(min(PROMPT_TOKENS, model.embedder.facts.max_tokens))]
    plan = CallPlan([InputPlan(tokens)], EmbedOptions(normalize=False))
    try:
        vectors = OwnCall(model, plan, "texts", VectorRun.vectors).result()
    except Error as error:
        raise failed(f"it gave no vector: {error.message}") from error
    if vectors.width != model.core.vector_width:
        raise failed(f"it gave a vector of {vectors.width} numbers, expected {model.core.vector_width}")


def failed(why: str) -> InternalError:
    error = make_error("BUG", f"the warm-up failed: {why}")
    assert isinstance(error, InternalError)  # narrows
    return error
