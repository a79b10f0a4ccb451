"""Guesses ahead, as users see them: the same replies over every way, and counts that agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import imp_service
from imp_service import GenerationResult, Usage
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc
from support.models.fixed_depth import DRAFTING, NO_DRAFTERS, fixed_depth
from support.servers.http_served import HttpServed, serve_http
from support.servers.scraped import scrape

DRAFTED = "imp_spec_drafted_total[drafter=ngram]"
# Among three tokens the text repeats itself, so that guesses are often right.
PROMPT = "one two three. " * 12
FEW = {300: 100.0, 301: 100.0, 302: 99.0}
MAX_TOKENS = 40


@pytest.fixture(scope="module")
def drafting() -> Iterator[HttpServed]:
    with fixed_depth(), serve_http(DRAFTING) as http:
        yield http


@contextmanager
def connected(http: HttpServed) -> Iterator[imp_service.Client]:
    with imp_service.connect(http.served.address) as client:
        yield client


def plain() -> GenerationResult:
    with imp_service.load(None, NO_DRAFTERS) as model:
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


@pytest.mark.long
def test_spc_1_spc_27_a_generation_is_the_same_and_says_how_many_guesses_it_had(drafting: HttpServed) -> None:
    expected = without_times(plain())
    with fixed_depth(), imp_service.load(None, DRAFTING) as model, connected(drafting) as client:
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
    before = scrape(drafting.served)[DRAFTED]
    answers = [
        drafting.client.post("/v1/completions", {**body, **fields}).json["choices"]
        for fields in ({"speculation": False}, {}, {"max_draft_tokens": 1}, {"speculation": True})
    ]
    assert answers[0] == answers[1] == answers[2] == answers[3]
    drafting.wait_for_rest()
    assert scrape(drafting.served)[DRAFTED] > before


def test_spc_27_metrics_usage_and_report_agree() -> None:
    with fixed_depth(), serve_http(DRAFTING) as http, connected(http) as client:
        results = [ask(client, max_draft_tokens=n, seed=n, temperature=0.5) for n in (1, 3, 8)]
        results += client.generate(PROMPT, max_tokens=MAX_TOKENS, num_sequences=2, seed=4, logit_bias=FEW).results()
        http.wait_for_rest()
        counted = scrape(http.served)
    # The sequences of a request have its report in common.
    used, reports = [each.usage for each in results[:4]], [each.speculation for each in results[:4]]
    assert [(each.drafters[0].drafted, each.drafters[0].accepted) for each in reports] == [
        (each.draft_tokens, each.accepted_draft_tokens) for each in used
    ]
    assert {drafter.name for each in reports for drafter in each.drafters} == {"ngram", "grammar"}
    assert counted[DRAFTED] == sum(each.draft_tokens for each in used) > 0
    assert counted["imp_spec_accepted_total[drafter=ngram]"] == sum(each.accepted_draft_tokens for each in used) > 0
    assert counted["imp_spec_rounds_total"] == sum(each.rounds for each in reports) >= counted[DRAFTED] / 8
    # Steps with and without guesses: all but the first output of each sequence, and those that came with a guess.
    n_steps = sum(each.output_tokens for each in used) - 5 - sum(each.accepted_draft_tokens for each in used)
    skipped = sum(n for name, n in counted.items() if name.startswith("imp_spec_skipped_total"))
    assert counted["imp_spec_rounds_total"] + skipped == n_steps
    assert counted["imp_spec_draft_seconds_total"] > 0


def test_spc_27_each_way_of_asking_gets_the_same_report(drafting: HttpServed) -> None:
    request = pb.GenerateRequest(
        text=PROMPT, sampling={"temperature": 0, "logit_bias": FEW}, stop={"max_tokens": MAX_TOKENS}
    )
    stub = inference_pb2_grpc.InferenceServiceStub(drafting.served.channel())
    (end,) = [reply.finished for reply in stub.Generate(request) if reply.HasField("finished")]
    whole = stub.GenerateUnary(pb.GenerateUnaryRequest(request=request))
    assert end.speculation == whole.speculation
    assert whole.speculation.rounds > 0 and not whole.speculation.off_reason
    assert whole.speculation.drafters[0].accepted == whole.usage.accepted_draft_tokens


def test_spc_27_a_report_says_why_nothing_was_guessed(drafting: HttpServed) -> None:
    with connected(drafting) as client:
        assert ask(client).speculation.off_reason == ""
        assert ask(client, speculation_enabled=False).speculation.off_reason == "disabled"
    assert plain().speculation == imp_service.SpeculationReport([], 0, "disabled")


def test_spc_29_server_and_settings_name_the_same_drafters(drafting: HttpServed) -> None:
    with connected(drafting) as client:
        assert list(client.info().drafters) == ["ngram", "grammar"]
    with serve_http(NO_DRAFTERS) as http, connected(http) as client:
        assert list(client.info().drafters) == []


def test_spc_28_nothing_is_guessed_where_a_request_or_the_settings_say_so(drafting: HttpServed) -> None:
    def drafted(usage: Usage) -> tuple[int, int]:
        return usage.draft_tokens, usage.accepted_draft_tokens

    with connected(drafting) as client:
        before = scrape(drafting.served)["imp_spec_rounds_total"]
        assert drafted(ask(client, speculation_enabled=False).usage) == (0, 0)
        drafting.wait_for_rest()
        assert scrape(drafting.served)["imp_spec_rounds_total"] == before
    assert drafted(plain().usage) == (0, 0)


@pytest.mark.long
def test_spc_28_asking_for_guesses_that_are_not_served_is_refused() -> None:
    with serve_http(NO_DRAFTERS) as http, connected(http) as client, imp_service.load(None, NO_DRAFTERS) as model:
        for each in (client, model):
            for options in ({"speculation_enabled": True}, {"max_draft_tokens": 4}, {"drafters": ["ngram"]}):
                with pytest.raises(imp_service.StateError) as raised:
                    ask(each, **options)
                assert raised.value.reason == "FEATURE_DISABLED"
                assert "speculation.drafters is empty" in str(raised.value)
            assert without_times(ask(each, speculation_enabled=False)) == without_times(plain())
        reply = http.client.post("/v1/completions", {"prompt": "a", "speculation": True})
        assert "speculation.drafters is empty" in reply.error["message"]


def test_spc_28_a_request_chooses_among_the_drafters_of_the_server() -> None:
    settings = 'speculation.drafters=["ngram", "model"]'
    with fixed_depth(), imp_service.load(None, settings) as model:
        expected = without_times(plain())
        for drafters in (["ngram"], ["model"], ["model", "ngram"], []):
            result = ask(model, drafters=drafters)
            assert without_times(result) == expected
            used = {each.name for each in result.speculation.drafters if each.drafted}
            assert used <= set(drafters or ["ngram", "model"]) and used
            with model.open(temperature=0, logit_bias=FEW) as session:
                session.prefill(PROMPT)
                report = session.generate(max_tokens=MAX_TOKENS, drafters=drafters).result().speculation
            assert {each.name for each in report.drafters if each.drafted} == used


def test_spc_28_a_drafter_that_is_not_there_is_refused(drafting: HttpServed) -> None:
    with connected(drafting) as client, fixed_depth(), imp_service.load(None, DRAFTING) as model:
        for each in (client, model):
            with pytest.raises(imp_service.StateError, match="drafters: model is not served here") as raised:
                ask(each, drafters=["model"])
            assert raised.value.reason == "FEATURE_DISABLED"
            with pytest.raises(imp_service.InvalidArgument, match=r"drafters\[1\]: 'grammar', expected one of"):
                ask(each, drafters=["ngram", "grammar"])
            with pytest.raises(imp_service.InvalidArgument, match="expected a list"):
                ask(each, drafters="ngram")


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

    with imp_service.load(None, NO_DRAFTERS) as model:
        expected = tokens_of(model)
    with imp_service.load(None, DRAFTING) as model, connected(drafting) as client:
        assert tokens_of(model) == expected
        assert tokens_of(client) == expected
