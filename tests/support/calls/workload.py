"""Random requests to the built-in model and several ways to run them, for tests of determinism."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import imp_service.text
from imp_service import GenerationRequest, LanguageModel, OutputOptions, SamplingOptions, StepOptions, StopOptions
from imp_service.api.options import DryOptions
from imp_service.api.replies import Chunk, Finished
from imp_service.text import ConstraintKind, ConstraintSpec, StopRules, StopStrings, TextStream

PHRASES = (
    "Once upon a time there was a",
    "It is a truth universally acknowledged, that a single man in possession of a good fortune",
    "The weather today is",
    "What is a tree? —",
    "Lily and Tom went to the market. They saw a",
    "<|im_start|>user",
    "3 plus 4 is",
    "naïve café, 日本語 🙂 and some bytes",
    '{"name": "cat", "legs":',
)
CONSTRAINTS = (
    ConstraintSpec(ConstraintKind.REGEX, "[a-z]{2,6}( [a-z]{2,6}){0,3}"),
    ConstraintSpec(ConstraintKind.CHOICES, choices=("yes", "no", "perhaps tomorrow")),
    ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"type": "object", "properties": {"n": {"type": "integer"}}}'),
)


@dataclass(frozen=True)
class Outcome:
    """Everything that a caller sees of a generation's output."""

    token_ids: tuple[int, ...]
    text: str
    reason: str


def random_request(rng: random.Random, tokenizer: imp_service.text.Tokenizer) -> GenerationRequest:
    """Returns a request of 3 to about 80 prompt tokens; many share a prefix, so that the cache has hits."""
    text = " ".join(rng.choice(PHRASES) for _ in range(rng.randint(1, 4)))
    prompt = tokenizer.encode(text)[: rng.randint(3, 80)]
    sampling = SamplingOptions(temperature=0.0)
    if rng.random() < 0.6:
        sampling = SamplingOptions(
            temperature=rng.uniform(0.3, 1.5),
            top_k=rng.choice([None, 5, 40]),
            top_p=rng.choice([None, 0.5, 0.95]),
            min_p=rng.choice([None, 0.02]),
            typical_p=rng.choice([None, 0.9]),
            seed=rng.getrandbits(64),
        )
    if rng.random() < 0.4:
        sampling = replace(
            sampling,
            repetition_penalty=rng.uniform(1.0, 1.5),
            frequency_penalty=rng.uniform(-0.5, 1.0),
            presence_penalty=rng.uniform(0.0, 1.0),
            penalty_window=rng.choice([None, 0, 16]),
            logit_bias={rng.randrange(256, 2000): rng.uniform(-5, 5)},
            dry=rng.choice([None, DryOptions(multiplier=0.8, breakers=(".",))]),
        )
    max_tokens = rng.randint(1, 24)
    stop = StopOptions(
        max_tokens=max_tokens,
        min_tokens=rng.randint(0, max_tokens) if rng.random() < 0.2 else 0,
        strings=rng.sample([".", " the", "a ", "and", "e t"], rng.randint(1, 2)) if rng.random() < 0.3 else (),
        token_ids=[rng.randrange(256, 2000)] if rng.random() < 0.2 else (),
        ignore_eos=rng.random() < 0.2,
    )
    constraint = rng.choice(CONSTRAINTS) if rng.random() < 0.15 else None
    return GenerationRequest(
        prompt, sampling, stop, constraint, OutputOptions(logprobs=rng.random() < 0.3), priority=rng.randint(-2, 2)
    )


def random_requests(n: int, seed: int, tokenizer: imp_service.text.Tokenizer) -> list[GenerationRequest]:
    """Returns the same requests for the same seed: greedy and sampled, with and without each other option."""
    rng = random.Random(seed)
    requests = [random_request(rng, tokenizer) for _ in range(n)]
    assert any(r.constraint for r in requests) and any(r.stop.strings for r in requests)
    assert {r.sampling.temperature == 0 for r in requests} == {True, False}
    return requests


def run(model: LanguageModel, request: GenerationRequest) -> Outcome:
    """Runs a request with `generate`."""
    token_ids: list[int] = []
    text = ""
    for reply in model.generate(request):
        text += reply.text
        if isinstance(reply, Chunk):
            assert reply.first_token == len(token_ids)
            token_ids += reply.token_ids
        elif isinstance(reply, Finished):
            reason = reply.reason
    return Outcome(tuple(token_ids), text, reason)


def run_together(model: LanguageModel, requests: Iterable[GenerationRequest], n_at_once: int) -> list[Outcome]:
    """Runs up to n_at_once requests at a time; each starts when an earlier one has ended."""
    with ThreadPoolExecutor(n_at_once) as pool:
        return list(pool.map(lambda request: run(model, request), requests))


class Sampled(Protocol):
    """The part of an output that a loop of steps reads."""

    @property
    def token_id(self) -> int | None: ...


class Steps(Protocol):
    """A session as a loop of steps uses it."""

    def prefill(self, prompt: Sequence[int], step: StepOptions) -> Sampled: ...
    def decode_step(self, tokens: Sequence[int], step: StepOptions) -> Sampled: ...


def run_by_steps(
    model: LanguageModel,
    request: GenerationRequest,
    open_session: Callable[[SamplingOptions], AbstractContextManager[Steps]] | None = None,
) -> Outcome:
    """Runs a request in a hand-written loop: prefill, then steps, with its own masks, stop tokens and stop strings.

    The session is the model's, or the one that `open_session` returns for the sampling options.
    """
    stop = request.stop
    rules = StopRules(StopStrings(stop.strings), stop.min_tokens)
    stream = TextStream(model._runtime.tokenizer.table, rules)
    state = None if request.constraint is None else model._runtime.text.compile(request.constraint).start()
    ends: Sequence[int] = [*stop.token_ids, *([] if stop.ignore_eos else model.eos_token_ids)]
    token_ids: list[int] = []
    text = ""
    reason = "max_tokens"
    with (open_session or model.open)(request.sampling) as session:
        prompt: Sequence[int] = list(request.prompt)
        while len(token_ids) < (stop.max_tokens or 0):
            if state is not None and state.only_end_is_possible:
                reason = "stop"
                break
            step = StepOptions(allowed_token_mask=b"" if state is None else state.mask()[: (model.vocab_size + 7) // 8])
            output = session.decode_step((), step) if token_ids else session.prefill(prompt, step)
            token = output.token_id
            assert isinstance(token, int)
            if token in ends and len(token_ids) >= stop.min_tokens:
                reason = "stop"
                break
            token_ids.append(token)
            delta = stream.feed(token)
            text += delta.text
            if delta.match is not None:
                return Outcome(tuple(token_ids), text, "stop")
            if state is not None:
                state.accept(token)
        else:
            if state is not None and state.only_end_is_possible:
                reason = "stop"
    return Outcome(tuple(token_ids), text + stream.finish(), reason)
