"""The drafter of a draft head: its guesses are those of the head, and change nothing of what clients see."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.forward_runs import prompt
from support.head_runs import HEADS, guesses, load_head
from support.sampler_requests import one
from support.script_engine import TurnedEngine
from support.script_oracle import Sampler

Revise = Callable[[int, list[int], list[int]], list[int]]
N_REQUESTS = 240
KINDS = ["nextn_llama", "eagle_qwen3"]


def engine_of(model: Any, revise: Revise | None = None, drafters: tuple[str, ...] = ("head",), **options: Any) -> Any:
    given: dict[str, Any] = {
        "n_blocks": 120, "max_context": 200, "max_running": 12, "step_tokens": 64, "prefill_chunk": 16,
        "drafters": list(drafters), **options,
    }  # fmt: skip
    return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given), None, revise))


def seen(engine: Any, ticket: int, n_sequences: int) -> list[Any]:
    """All that a client sees of a run, except for its times."""
    found: list[Any] = []
    for stream in range(n_sequences):
        for event in engine.events[ticket]:
            if isinstance(event, _core.TokenEvent) and event.stream == stream:
                candidates = [(c.token, c.logprob) for c in event.candidates]
                found.append((stream, event.output, event.token, event.logprob, candidates, event.logits.tobytes()))
        end = engine.finished(ticket, stream)
        found.append((stream, end.reason, end.n_outputs, end.position, end.pending))
    return found


def random_requests(seed: int, n: int, vocab_size: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    shared = prompt(40, vocab_size, seed=3)
    return [
        {
            "tokens": rng.choice([shared, prompt(45, vocab_size, seed=i)])[: rng.randrange(2, 45)],
            "sampling": Sampler(
                temperature=rng.choice([0.0, 0.7]), seed=rng.randrange(100), repetition_penalty=rng.choice([1.0, 1.3]),
                logit_bias=rng.choice([{}, {3: -4.0, 9: 1.5}]),
            ),
            "max_outputs": rng.choice([1, 2, 9, 24]),
            "stop_tokens": sorted(rng.sample(range(51), rng.choice([0, 2]))),
            "logprobs": rng.random() < 0.5,
            "n_candidates": rng.choice([0, 3]),
            "logits": rng.random() < 0.2,
            "n_sequences": rng.choice([1, 1, 3]),
        }
        for i in range(n)
    ]  # fmt: skip


def run_all(engine: Any, requests: list[dict[str, Any]], rng: random.Random, depths: list[int]) -> list[Any]:
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
    return [seen(engine, ticket, n) for ticket, n in tickets]


@pytest.mark.parametrize("kind", KINDS)
def test_spc_1_guesses_of_a_head_change_nothing_that_a_client_sees(kind: str, tmp_path: Path) -> None:
    """Random requests in random company, in a pool where some are preempted."""
    head = HEADS[kind]
    requests = random_requests(7, N_REQUESTS // 6, head.model.vocab_size)
    plain = run_all(engine_of(load_head(head, tmp_path), drafters=()), requests, random.Random(1), [0])
    following = continuations(requests, plain)
    rng = random.Random(5)

    def revise(sequence: int, tokens: list[int], guessed: list[int]) -> list[int]:
        right = following.get(tuple(tokens), guessed)
        return right[: len(guessed)] if rng.random() < 0.6 else guessed

    engine = engine_of(load_head(head, tmp_path), revise, n_blocks=40, max_running=6)
    assert run_all(engine, requests, random.Random(2), [1, 3, 16]) == plain
    drafts = engine.core.stats().drafts
    assert drafts.n_drafted > 200 and 50 < drafts.n_accepted < drafts.n_drafted


def continuations(requests: list[dict[str, Any]], records: list[list[Any]]) -> dict[tuple[int, ...], list[int]]:
    """The outputs after each prefix. Requests with equal prompts may go on otherwise."""
    following: dict[tuple[int, ...], list[int]] = {}
    for request, record in zip(requests, records, strict=True):
        for stream in range(request["n_sequences"]):
            outputs = [entry[2] for entry in record if len(entry) == 6 and entry[0] == stream]
            for n in range(len(outputs)):
                following[*request["tokens"], *outputs[:n]] = outputs[n:]
    return following


class Recorded:
    """Keeps the guesses of rounds, and replaces their first ones by those that are right."""

    def __init__(self, outputs: list[int], n_prompt: int, n_right: int) -> None:
        self.outputs, self.n_prompt, self.n_right = outputs, n_prompt, n_right
        self.rounds: dict[int, list[int]] = {}

    def __call__(self, sequence: int, tokens: list[int], guessed: list[int]) -> list[int]:
        if not guessed:
            return guessed
        self.rounds[len(tokens)] = guessed
        at = len(tokens) - self.n_prompt
        right = self.outputs[at : at + min(self.n_right, len(guessed))]
        return [*right, *((token + 1) % 51 for token in guessed[len(right) : len(right) + 1])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_spc_22_guesses_equal_those_of_a_head_primed_fresh(kind: str, chunk: int, tmp_path: Path) -> None:
    """After 0 to 4 right guesses and a wrong one, and after any chunks of the prompt."""
    head = HEADS[kind]
    model = load_head(head, tmp_path)
    tokens = prompt(29, head.model.vocab_size)
    given = {"sampling": Sampler(temperature=0.0), "max_outputs": 40, "max_draft_tokens": 6}
    outputs = engine_of(model, drafters=()).complete(tokens, **given)
    fresh: dict[int, list[int]] = {}
    for n_right in range(5):
        recorded = Recorded(outputs, len(tokens), n_right)
        engine = engine_of(model, recorded, prefill_chunk=chunk, step_tokens=max(chunk, 64))
        assert engine.complete(tokens, **given) == outputs
        drafts = engine.core.stats().drafts
        assert drafts.n_accepted >= 15 * n_right / (n_right + 1)
        assert len(recorded.rounds) >= 5
        for n_known, guessed in recorded.rounds.items():
            if n_known not in fresh:
                primed = Recorded(outputs, n_known - 1, 0)
                whole = engine_of(model, primed)
                whole.complete([*tokens, *outputs][: n_known - 1], **given | {"max_outputs": 9})
                fresh[n_known] = primed.rounds[n_known]
            n = min(len(guessed), len(fresh[n_known]))
            assert n >= 1 and guessed[:n] == fresh[n_known][:n]


@pytest.mark.parametrize("kind", KINDS)
def test_spc_22_greedy_guesses_are_the_most_likely_tokens_of_the_head(kind: str, tmp_path: Path) -> None:
    """Those of the formula's own logits, which another test compares with NumPy."""
    head = HEADS[kind]
    model = load_head(head, tmp_path)
    tokens = prompt(29, head.model.vocab_size)
    rounds: dict[int, tuple[list[int], list[int]]] = {}

    def revise(sequence: int, known: list[int], guessed: list[int]) -> list[int]:
        rounds[len(known)] = (known, guessed)
        return guessed

    engine_of(model, revise).complete(tokens, sampling=Sampler(temperature=0.0), max_outputs=20, max_draft_tokens=5)
    assert len(rounds) > 5
    for known, guessed in rounds.values():
        rows = guesses(model, known, guessed[:-1])
        assert [int(row.argmax()) for row in rows] == guessed


@pytest.mark.parametrize("kind", KINDS)
def test_spc_14_a_head_draws_with_the_random_number_of_the_output(kind: str, tmp_path: Path) -> None:
    """With the request's sampler, and with guesses in the history; another index gives other draws."""
    head = HEADS[kind]
    model = load_head(head, tmp_path)
    tokens = prompt(29, head.model.vocab_size)
    rounds: list[tuple[list[int], list[int]]] = []

    def revise(sequence: int, known: list[int], guessed: list[int]) -> list[int]:
        rounds.append((known, guessed))
        return guessed

    fields = {"temperature": 1.0, "seed": 5, "repetition_penalty": 1.4}
    engine_of(model, revise).complete(tokens, sampling=Sampler(**fields), max_outputs=16, max_draft_tokens=4)
    drawn, expected, others = [], [], []
    for known, guessed in rounds:
        drawn += guessed
        for i, row in enumerate(guesses(model, known, guessed[:-1])):
            history = [*known, *guessed[:i]]
            n_output = len(history) - len(tokens)
            request = {**fields, "history": history, "n_output": n_output}
            expected.append(one(row, index=n_output, **request))
            others.append(one(row, index=n_output + 1, **request))
    assert len(drawn) > 20 and drawn == expected
    assert drawn != others


def test_spc_28_no_head_is_asked_where_it_is_not_named(tmp_path: Path) -> None:
    model = load_head(HEADS["nextn_llama"], tmp_path)
    engine = engine_of(model, drafters=())
    engine.complete(prompt(20, 51), max_outputs=10, max_draft_tokens=8)
    assert engine.core.stats().drafts.n_drafted == 0
