"""Over HTTP a `max_tokens` beyond the context ends with `length`; over gRPC it is refused (GEN-13, OAI-16)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.servers.http_served import HttpServed, serve_http

CHATS, TEXTS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
CONTEXT = 64
LIMITS = {CHATS: "max_tokens", TEXTS: "max_tokens", RESPONSES: "max_output_tokens"}
FIT = "imp-max-tokens"


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http(f"limits.max_context={CONTEXT}") as it:
        yield it


def base_of(path: str) -> dict[str, Any]:
    asked = {CHATS: {"messages": [{"role": "user", "content": "Hi"}]}, TEXTS: {"prompt": "the cat"}}
    return {**asked.get(path, {"input": "Hi"}), "ignore_eos": True, "seed": 7}


def counts(usage: dict[str, Any]) -> tuple[int, int]:
    """Returns the tokens of the prompt and of the output."""
    names = ("prompt_tokens", "completion_tokens") if "prompt_tokens" in usage else ("input_tokens", "output_tokens")
    return usage[names[0]], usage[names[1]]


@pytest.mark.parametrize("path", LIMITS)
def test_oai_16_a_limit_beyond_the_context_ends_where_the_context_does(http: HttpServed, path: str) -> None:
    # Unset, a completion has OpenAI's default; -1 is no limit on every path.
    plain = http.client.post(path, {**base_of(path), LIMITS[path]: -1})
    n_prompt, n_output = counts(plain.json["usage"])
    assert n_prompt + n_output == CONTEXT + 1 and FIT not in plain.headers
    for asked in (n_output + 1, 4096, 100_000, 2**32 - 1):
        reply = http.client.post(path, {**base_of(path), LIMITS[path]: asked})
        assert (reply.status, reply.headers[FIT]) == (200, str(n_output)), asked
        assert counts(reply.json["usage"]) == (n_prompt, n_output)
        if path == RESPONSES:
            assert reply.json["incomplete_details"] == {"reason": "max_output_tokens"}
            assert reply.json["output"][0]["content"] == plain.json["output"][0]["content"]
        else:
            assert reply.choice == plain.choice and reply.choice["finish_reason"] == "length"
    exact = http.client.post(path, {**base_of(path), LIMITS[path]: n_output})
    assert (exact.status, FIT in exact.headers, counts(exact.json["usage"])) == (200, False, (n_prompt, n_output))


@pytest.mark.parametrize("path", LIMITS)
def test_oai_16_a_stream_says_it_before_its_first_event(http: HttpServed, path: str) -> None:
    whole = http.client.post(path, {**base_of(path), LIMITS[path]: 4096})
    options = {} if path == RESPONSES else {"stream_options": {"include_usage": True}}
    events = http.client.stream(path, {**base_of(path), **options, LIMITS[path]: 4096})
    assert events.headers[FIT] == whole.headers[FIT]
    last = events.objects[-1]
    usage = last["response"]["usage"] if path == RESPONSES else last["usage"]
    assert counts(usage) == counts(whole.json["usage"])


def test_oai_16_each_of_several_prompts_may_fill_its_own_context(http: HttpServed) -> None:
    prompts = [[300] * 8, [300] * 60]
    reply = http.complete(prompts, max_tokens=30, ignore_eos=True)
    assert (reply.status, reply.headers[FIT]) == (200, "5")
    assert [choice["finish_reason"] for choice in reply.json["choices"]] == ["length", "length"]
    assert reply.json["usage"]["completion_tokens"] == 30 + 5


def test_oai_16_a_prompt_beyond_the_context_is_still_refused(http: HttpServed) -> None:
    for limit in (None, 1, 4096):
        reply = http.complete([300] * (CONTEXT + 1), max_tokens=limit)
        assert reply.refusal == (400, "context_length_exceeded", None)
        assert FIT not in reply.headers


def test_oai_16_a_limit_of_the_servers_settings_is_not_raised() -> None:
    with serve_http(f"limits.max_context={CONTEXT}", "limits.max_tokens=8") as http:
        assert http.complete("x", max_tokens=9).refusal == (400, "field_invalid", "max_tokens")
        assert http.complete("x", max_tokens=8, ignore_eos=True).json["usage"]["completion_tokens"] == 8
