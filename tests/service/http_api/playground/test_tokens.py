"""The token view: the model's alternatives, and the text that follows each of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from playwright.sync_api import expect

from support.calls.generations import saying, spelled, vocabulary
from support.servers.http_served import HttpServed, serve_http

STORY = "Tell me a short story."
# The length of the prompt for the message.
TOKENS_OF_HI = 10
LOOKS = {"logprobs": True, "top_logprobs": 5, "return_token_ids": True}


def texts_of(it: Any) -> list[str]:
    """Returns the shown tokens."""
    return list(it.page.locator(".token").all_text_contents())


def shown_candidates(it: Any, at: int) -> list[tuple[str, str]]:
    """Returns text and share of each candidate of a token."""
    it.page.locator(".token").nth(at).focus()
    rows = it.page.locator(".card button")
    shares = rows.locator("span").all_text_contents()
    return list(zip(rows.locator("code").all_text_contents(), shares, strict=True))


def percent(logprob: float) -> str:
    """Formats a probability as the page does."""
    share = math.exp(logprob) * 100
    return "100 %" if share >= 99.95 else "< 0.1 %" if share < 0.1 else f"{share:.1f} %"


def visible(text: str) -> str:
    """Formats a single token as the page does."""
    return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


@pytest.mark.long
def test_ply_3_joined_tokens_are_the_text_and_candidates_are_the_api_s(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=11)
        it.ask(STORY)
        text = it.answer
        it.button("Tokens").click()
        content = http.chat(STORY, seed=11, **LOOKS).choice["logprobs"]["content"]
        assert "".join(texts_of(it)) == text
        assert texts_of(it) == [each["token"] for each in content]
        for at in (0, 9, len(content) - 1):
            wanted = content[at]["top_logprobs"]
            found = shown_candidates(it, at)
            assert found[:5] == [(visible(each["token"]), percent(each["logprob"])) for each in wanted]


@pytest.mark.long
def test_ply_3_a_candidate_goes_on_as_the_api_does(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=11)
        it.ask(STORY)
        it.button("Tokens").click()
        reply = http.chat(STORY, seed=11, **LOOKS)
        content = reply.choice["logprobs"]["content"]
        at = 4
        other = content[at]["top_logprobs"][1]
        it.page.locator(".token").nth(at).click()
        it.page.locator(".card button").nth(1).click()
        expect(it.page.get_by_text("2 of 2")).to_be_visible()
        kept = [each["token_id"] for each in content[:at]] + [other["token_id"]]
        prompt = [*reply.json["prompt_token_ids"], *kept]
        text = http.complete(prompt, seed=11, max_tokens=512 - len(prompt) + 1).choice["text"]
        before = "".join(each["token"] for each in [*content[:at], other])
        assert "".join(texts_of(it)) == before + text
        # From an answer that already continued from another token.
        it.page.locator(".token").nth(7).click()
        it.page.locator(".card button").nth(2).click()
        expect(it.page.get_by_text("3 of 3")).to_be_visible()
        assert texts_of(it)[: at + 1] == [*(each["token"] for each in content[:at]), other["token"]]
        it.button("Same again").click()
        expect(it.page.locator(".note")).to_contain_text("The same answer again")


@pytest.mark.long
def test_ply_3_tokens_of_a_stop_text_are_shown_without_text(http: HttpServed, visit: Any) -> None:
    with visit(http) as it:
        it.set(seed=11, stop="upon a")
        it.ask(STORY)
        assert it.answer == "Once "
        it.button("Tokens").click()
        assert texts_of(it) == ["Once", " ", ""]


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><b>bold</b>",
        "half: \U0001f600 é 漢字 \U0001f468‍\U0001f469‍\U0001f467",
        "</style></script>\u2028&lt;!-- ${1+1} `x` \\ \x00\x1b[31m",
    ],
)
def test_ply_3_what_a_model_says_is_text(visit: Any, text: str) -> None:
    """Tokens have one byte each, so most characters need several."""
    table = [*[0] * (TOKENS_OF_HI - 1), *spelled(text), min(vocabulary().eos_ids)]
    greedy = "model.overrides.default_sampling.temperature=0"
    with serve_http(greedy, model=saying(table)) as http, visit(http) as it:
        it.ask("Hi")
        assert it.answer == text
        it.button("Tokens").click()
        assert "".join(texts_of(it)) == text
        assert len(texts_of(it)) == len(text.encode())
        assert it.page.title() == "imp-demo · imp"
        assert it.page.locator(".reply b, .reply img, .reply script").count() == 0
        assert it.console == []
