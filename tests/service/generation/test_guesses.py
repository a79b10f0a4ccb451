"""Guesses ahead, as users see them: the same replies over every way, and counts that agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import imp_service
from imp_service import GenerationResult, Usage
from support.http_served import HttpServed, serve_http
from support.scraped import scrape

DRAFTING = 'speculation.drafters=["ngram"]'
# Among three tokens the text repeats itself, so that guesses are often right.
PROMPT = "one two three. " * 12
FEW = {300: 100.0, 301: 100.0, 302: 99.0}
MAX_TOKENS = 40


@pytest.fixture(scope="module")
def drafting() -> Iterator[HttpServed]:
    with serve_http(DRAFTING) as http:
        yield http


@contextmanager
def connected(http: HttpServed) -> Iterator[imp_service.Client]:
    with imp_service.connect(http.served.address) as client:
        yield client


def plain() -> GenerationResult:
    with imp_service.load() as model:
        return ask(model)


def ask(model: imp_service.LanguageModel | imp_service.Client, **options: Any) -> GenerationResult:
    return model.generate(
        PROMPT, **{"max_tokens": MAX_TOKENS, "temperature": 0, "logprobs": True, "logit_bias": FEW, **options}
    ).result()


def without_times(result: GenerationResult) -> dict[str, Any]:
    """Returns all that does not depend on the clock. Guesses may depend on it."""
    used = replace(result.usage, draft_tokens=0, accepted_draft_tokens=0, cached_prompt_tokens=0)
    return {name: getattr(result, name) for name in ("text", "token_ids", "finish_reason", "match", "logprobs")} | {
        "usage": used
    }


def test_spc_1_spc_27_a_generation_is_the_same_and_says_how_many_guesses_it_had(drafting: HttpServed) -> None:
    expected = without_times(plain())
    with imp_service.load(None, DRAFTING) as model, connected(drafting) as client:
        found = [ask(model), ask(client), ask(model, max_draft_tokens=2), ask(client, max_draft_tokens=2)]
    for result in found:
        assert without_times(result) == expected
        # The first token of a step needs no guess.
        assert 10 < result.usage.accepted_draft_tokens < MAX_TOKENS
        assert result.usage.accepted_draft_tokens <= result.usage.draft_tokens


def test_spc_1_openai_replies_are_the_same(drafting: HttpServed) -> None:
    body = {
        "prompt": PROMPT,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "logprobs": 2,
        "logit_bias": {str(token): 100 for token in FEW},
    }
    before = scrape(drafting.served)["imp_spec_drafted_total"]
    answers = [
        drafting.client.post("/v1/completions", {**body, **fields}).json["choices"]
        for fields in ({"speculation": False}, {}, {"max_draft_tokens": 1}, {"speculation": True})
    ]
    assert answers[0] == answers[1] == answers[2] == answers[3]
    drafting.wait_for_rest()
    assert scrape(drafting.served)["imp_spec_drafted_total"] > before


def test_spc_27_metrics_and_usage_agree() -> None:
    with serve_http(DRAFTING) as http, connected(http) as client:
        used = [ask(client, max_draft_tokens=n, seed=n, temperature=0.5).usage for n in (1, 3, 8)]
        http.wait_for_rest()
        counted = scrape(http.served)
    assert counted["imp_spec_drafted_total"] == sum(each.draft_tokens for each in used) > 0
    assert counted["imp_spec_accepted_total"] == sum(each.accepted_draft_tokens for each in used) > 0
    assert counted["imp_spec_rounds_total"] >= counted["imp_spec_drafted_total"] / 8


def test_spc_28_nothing_is_guessed_where_a_request_or_the_settings_say_so(drafting: HttpServed) -> None:
    def drafted(usage: Usage) -> tuple[int, int]:
        return usage.draft_tokens, usage.accepted_draft_tokens

    with connected(drafting) as client:
        before = scrape(drafting.served)["imp_spec_rounds_total"]
        assert drafted(ask(client, speculation_enabled=False).usage) == (0, 0)
        # The index cannot know what a grammar allows.
        assert drafted(
            ask(client, constraint=imp_service.ConstraintSpec(imp_service.ConstraintKind.REGEX, "[a-z ]*")).usage
        ) == (0, 0)
        drafting.wait_for_rest()
        assert scrape(drafting.served)["imp_spec_rounds_total"] == before
    assert drafted(plain().usage) == (0, 0)


def test_spc_28_asking_for_guesses_that_are_not_served_is_refused() -> None:
    with serve_http() as http, connected(http) as client, imp_service.load() as model:
        for each in (client, model):
            for options in ({"speculation_enabled": True}, {"max_draft_tokens": 4}):
                with pytest.raises(imp_service.StateError) as raised:
                    ask(each, **options)
                assert raised.value.reason == "FEATURE_DISABLED"
                assert "speculation.drafters is empty" in str(raised.value)
            assert without_times(ask(each, speculation_enabled=False)) == without_times(plain())
        reply = http.client.post("/v1/completions", {"prompt": "a", "speculation": True})
        assert "speculation.drafters is empty" in reply.error["message"]


def test_spc_6_sessions_and_steps_give_the_same_tokens(drafting: HttpServed) -> None:
    """generate() of a session drafts; a step is one token, and goes on where a round ended."""

    def tokens_of(model: imp_service.LanguageModel | imp_service.Client) -> list[Any]:
        with model.open(temperature=0, logit_bias=FEW) as session:
            session.prefill(PROMPT)
            first = session.generate(max_tokens=17).result()
            stepped = session.decode_step().token_id
            second = session.generate(max_tokens=9).result()
            position = session.position
            session.truncate(position - 5)
            return [first.token_ids, stepped, second.token_ids, position, session.generate(max_tokens=4).result().text]

    with imp_service.load() as model:
        expected = tokens_of(model)
    with imp_service.load(None, DRAFTING) as model, connected(drafting) as client:
        assert tokens_of(model) == expected
        assert tokens_of(client) == expected
