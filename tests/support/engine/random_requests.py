"""Random requests with all that a script engine samples by, and the record of what their clients see."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from imp_service import _core
from support.engine.script_engine import TurnedEngine
from support.oracles.script_oracle import Sampler, prompt_of


def random_sampler(rng: random.Random) -> Sampler:
    return Sampler(
        temperature=rng.choice([0.0, 0.0, 0.7, 1.3]), seed=rng.randrange(100),
        repetition_penalty=rng.choice([1.0, 1.0, 1.3]), frequency_penalty=rng.choice([0.0, 0.5]),
        presence_penalty=rng.choice([0.0, 0.4]), logit_bias=rng.choice([{}, {3: -4.0, 9: 1.5}]),
    )  # fmt: skip


def random_requests(seed: int, n: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "tokens": prompt_of(rng.randrange(1, 50), rng.randrange(9)),
            "sampling": random_sampler(rng),
            "max_outputs": rng.choice([1, 2, 7, 20, 40]),
            "stop_tokens": sorted(rng.sample(range(16), rng.choice([0, 0, 1, 2]))),
            "eos_tokens": rng.choice([[], [5]]),
            "min_outputs": rng.choice([0, 1]),
            "logprobs": rng.random() < 0.5,
            "n_candidates": rng.choice([0, 3]),
            "logits": rng.random() < 0.2,
            "n_sequences": rng.choice([1, 1, 1, 3]),
        }
        for _ in range(n)
    ]


def record_of(
    engine: TurnedEngine,
    ticket: int,
    n_sequences: int,
    reason_of: Callable[[str, list[int]], str] = lambda reason, outputs: reason,
) -> list[Any]:
    """Returns all that a client sees of a run except for its times.

    `reason_of` returns what the service says of the engine's reason and the outputs.
    """
    seen: list[Any] = []
    for stream in range(n_sequences):
        for event in engine.events[ticket]:
            if isinstance(event, _core.TokenEvent) and event.stream == stream:
                candidates = [(c.token, c.logprob) for c in event.candidates]
                facts = (event.output, event.token, event.position, event.eos, event.logprob)
                seen.append((stream, *facts, candidates, event.logits.tobytes()))
        end = engine.finished(ticket, stream)
        stop = (end.stop_token, end.eos, end.stop_logprob, [(c.token, c.logprob) for c in end.stop_candidates])
        reason = reason_of(end.reason, engine.tokens(ticket, stream))
        seen.append((stream, reason, end.n_outputs, end.position, end.pending, *stop))
    return seen


def run_all(engine: TurnedEngine, requests: list[dict[str, Any]], rng: random.Random, depths: list[int]) -> list[Any]:
    """Runs the requests in random batches and returns what their clients see."""
    tickets = []
    for request in requests:
        given = dict(request)
        n_sequences = given.pop("n_sequences")
        siblings = [engine.sequence() for _ in range(n_sequences - 1)]
        tickets.append((engine.generate(**given, siblings=siblings, max_draft_tokens=rng.choice(depths)), n_sequences))
        for _ in range(rng.randrange(4)):
            engine.turn()
    engine.turn_until_idle()
    engine.assert_at_rest()
    return [record_of(engine, ticket, n) for ticket, n in tickets]
