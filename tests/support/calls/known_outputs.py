"""Requests to the built-in model with their expected outputs, which this process generates beforehand, one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import imp_service
from imp_service import GenerationRequest, LanguageModel, OutputOptions, SamplingOptions, StopOptions
from imp_service.pb import inference_pb2 as pb
from support.calls.wire_ways import request_message
from support.calls.workload import PHRASES, run


@dataclass(frozen=True)
class Known:
    """A request and the tokens of its whole output."""

    request: pb.GenerateRequest
    token_ids: Sequence[int]

    def begins_with(self, token_ids: Sequence[int]) -> bool:
        """Returns whether these tokens are the start of the output."""
        return list(token_ids) == list(self.token_ids[: len(token_ids)])


def known_outputs(n: int, seed: int, most_tokens: int = 120) -> list[Known]:
    """Returns outputs of up to `most_tokens` tokens, greedy and sampled. Every fourth has candidates and is large."""
    with imp_service.load(None, "device.threads=1") as model:
        return [_known(model, random.Random(seed * 1000 + i), i, most_tokens) for i in range(n)]


def _known(model: LanguageModel, rng: random.Random, number: int, most_tokens: int) -> Known:
    text = " ".join(rng.choice(PHRASES) for _ in range(rng.randint(1, 3)))
    sampling = SamplingOptions(temperature=0.0 if number % 3 == 0 else 0.9, seed=rng.getrandbits(32))
    # The longest outputs are included whatever the seed is.
    n_tokens = most_tokens if number % 4 == 0 else rng.randint(1, most_tokens)
    request = GenerationRequest(
        model._runtime.tokenizer.encode(text)[:60],
        sampling,
        StopOptions(max_tokens=n_tokens, ignore_eos=True),
        output=OutputOptions(logprobs=number % 4 == 0),
    )
    message = request_message(request)
    if number % 4 == 0:
        message.output.top_logprobs = 20
    return Known(message, run(model, request).token_ids)
