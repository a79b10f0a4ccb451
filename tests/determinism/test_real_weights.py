"""The default speculation on a real model: a hundred answers with guesses equal those without, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

import imp_service
from imp_service import LanguageModel
from support.fixed_depth import NO_DRAFTERS
from support.real_weights import real_weights, with_real_weights
from support.repeating_chats import KINDS, repeating_chats

pytestmark = [with_real_weights, pytest.mark.timeout(1800)]

CHATS = repeating_chats(100, seed=33)
MAX_TOKENS = 48
N_AT_ONCE = 8
# Guesses for 50 answers. Their number follows the speed of the machine; it was 1,500, and half of them were right.
AT_LEAST = 200
# Half of each kind of conversation is answered in a batch; half of each half is sampled.
ALONE, TOGETHER = range(50), range(50, 100)


class Answer(NamedTuple):
    """All that a client sees of an answer, without its times."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    candidates: Sequence[Any]
    text: str
    reason: str


class Answered(NamedTuple):
    answer: Answer
    n_drafted: int
    n_accepted: int


def is_sampled(i: int) -> bool:
    return i // len(KINDS) % 2 == 1


def ask(model: LanguageModel, i: int, seed: int) -> Answered:
    """Answers conversation i, greedily or with random numbers of this seed."""
    temperature = 0.8 if is_sampled(i) else 0.0
    options = {"temperature": temperature, "seed": seed, "logprobs": True, "top_logprobs": 3}
    result = model.chat(CHATS[i], max_tokens=MAX_TOKENS, **options).result()
    answer = Answer(result.token_ids, result.logprobs, result.candidates, result.text, result.finish_reason)
    return Answered(answer, result.usage.draft_tokens, result.usage.accepted_draft_tokens)


@pytest.fixture(scope="module")
def without_guesses() -> list[Answer]:
    """The answer to each conversation, asked alone."""
    with imp_service.load(real_weights(), NO_DRAFTERS) as model:
        found = [ask(model, i, seed=i) for i in range(len(CHATS))]
    assert {each.n_drafted for each in found} == {0}
    assert len({each.answer.text for each in found}) > len(CHATS) * 3 // 4
    return [each.answer for each in found]


@pytest.fixture(scope="module")
def by_default() -> Iterator[LanguageModel]:
    """The model with imp's own settings: the drafter `ngram`, whose depth follows the measured costs."""
    with imp_service.load(real_weights()) as model:
        yield model


def test_spc_1_d13_default_guesses_change_no_answer_of_a_real_model(
    by_default: LanguageModel, without_guesses: list[Answer]
) -> None:
    found = [ask(by_default, i, seed=i) for i in ALONE]
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        found += pool.map(lambda i: ask(by_default, i, seed=i), TOGETHER)
    assert [i for i, each in enumerate(found) if each.answer != without_guesses[i]] == []
    for part in (ALONE, TOGETHER):
        n_drafted = sum(found[i].n_drafted for i in part)
        n_accepted = sum(found[i].n_accepted for i in part)
        print(f"{len(part)} answers: {n_drafted} guesses, {n_accepted} right")
        assert n_drafted >= AT_LEAST and AT_LEAST // 4 <= n_accepted <= n_drafted - AT_LEAST // 4


def test_hon_1_another_seed_changes_the_sampled_answers_of_a_real_model(
    by_default: LanguageModel, without_guesses: list[Answer]
) -> None:
    sampled = [i for i in ALONE if is_sampled(i)][:5]
    differing = [i for i in sampled if ask(by_default, i, seed=i + 1).answer != without_guesses[i]]
    assert len(differing) > len(sampled) // 2
