"""The drafter of a draft head: its guesses are those of the head, and change nothing of what clients see."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.engine.random_requests import random_requests, run_all
from support.engine.script_engine import TurnedEngine
from support.kernels.sampler_requests import one
from support.models.forward_runs import prompt
from support.models.head_runs import HEADS, guesses, load_head
from support.oracles.script_oracle import Sampler

Revise = Callable[[int, list[int], list[int]], list[int]]
N_REQUESTS = 60
N_FACTS = 5  # of a token in the record of a run, after its stream, output and id
KINDS = ["nextn_llama", "eagle_qwen3", "nextn_qwen35", "nextn_qwen3next", "assistant"]


def engine_of(model: Any, revise: Revise | None = None, drafters: tuple[str, ...] = ("head",), **options: Any) -> Any:
    given: dict[str, Any] = {
        "n_blocks": 120, "max_context": 200, "max_running": 12, "step_tokens": 64, "prefill_chunk": 16,
        "drafters": list(drafters), "n_state_slots": model.n_state_slots, "fixed_depth": True, **options,
    }  # fmt: skip
    return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given), None, revise))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_spc_1_guesses_of_a_head_change_nothing_that_a_client_sees(kind: str, tmp_path: Path) -> None:
    """Random requests in random batches, in a pool where some are preempted."""
    requests = random_requests(7, N_REQUESTS)
    plain = run_all(engine_of(load_head(HEADS[kind], tmp_path), drafters=()), requests, random.Random(1), [0])
    following = continuations(requests, plain)
    rng = random.Random(5)

    def revise(sequence: int, tokens: list[int], guessed: list[int]) -> list[int]:
        right = following.get(tuple(tokens), guessed)
        return right[: len(guessed)] if rng.random() < 0.6 else guessed

    engine = engine_of(load_head(HEADS[kind], tmp_path), revise, n_blocks=40, max_running=6)
    assert run_all(engine, requests, random.Random(2), [1, 3, 16]) == plain
    drafts = engine.core.stats().drafts
    assert drafts.n_drafted > 200 and 50 < drafts.n_accepted < drafts.n_drafted


def continuations(requests: list[dict[str, Any]], records: list[list[Any]]) -> dict[tuple[int, ...], list[int]]:
    """Returns the outputs after each prefix. Requests with equal prompts may continue differently."""
    following: dict[tuple[int, ...], list[int]] = {}
    for request, record in zip(requests, records, strict=True):
        for stream in range(request["n_sequences"]):
            outputs = [token for of, _, token, *facts in record if of == stream and len(facts) == N_FACTS]
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


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_spc_22_guesses_equal_those_of_a_head_primed_fresh(kind: str, chunk: int, tmp_path: Path) -> None:
    """Guesses are the same after 0 to 4 right guesses and a wrong one, and after any chunks of the prompt."""
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


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", ["eagle_qwen3", "nextn_qwen35", "assistant"])
@pytest.mark.parametrize("seed", range(3))
def test_spc_19_nothing_of_closed_sequences_is_left(kind: str, seed: int, tmp_path: Path) -> None:
    """Random runs, cuts, forks and truncations of sessions; then a generation guesses as in a fresh engine."""
    rng = random.Random(seed)
    model = load_head(HEADS[kind], tmp_path)
    rounds: list[tuple[list[int], list[int]]] = []

    def note(sequence: int, known: list[int], guessed: list[int]) -> list[int]:
        rounds.append((known, guessed))
        return guessed

    engine = engine_of(model, note, n_blocks=20, prefix_cache=False)
    sessions = [engine.open(sampling=Sampler(temperature=0.8, seed=seed))]
    for _ in range(9):
        session = rng.choice(sessions)
        engine.step(session, prompt(rng.randrange(1, 20), 51, rng.randrange(9)), max_outputs=7, max_draft_tokens=3)
        if rng.random() < 0.3:
            engine.command("truncate", session, rng.randrange(1, engine.core.held(session) + 1))
        elif len(sessions) < 3:
            sessions.append(engine.sequence())
            engine.command("fork", session, sessions[-1])
        engine.turn_until_idle()
        if engine.core.held(session) > 90:
            break
    for session in sessions:
        engine.command("close", session)
    engine.turn_until_idle()
    given = {"sampling": Sampler(temperature=0.8, seed=seed), "max_outputs": 30, "max_draft_tokens": 3}
    assert len(rounds) > 5
    rounds.clear()
    outputs = engine.complete(prompt(40, 51), **given)
    found = list(rounds)
    rounds.clear()
    assert engine_of(model, note, prefix_cache=False).complete(prompt(40, 51), **given) == outputs
    assert len(found) > 5 and found == rounds


def test_spc_28_no_head_is_asked_where_it_is_not_named(tmp_path: Path) -> None:
    model = load_head(HEADS["nextn_llama"], tmp_path)
    engine = engine_of(model, drafters=())
    engine.complete(prompt(20, 51), max_outputs=10, max_draft_tokens=8)
    assert engine.core.stats().drafts.n_drafted == 0
